// Libraries of Debian's that bring no types, as far as they are used here.
declare module "katex" {
  const katex: { render(tex: string, target: HTMLElement, options: object): void };
  export default katex;
}

declare module "highlight.js/highlight" {
  const hljs: {
    registerLanguage(name: string, language: unknown): void;
    getLanguage(name: string): unknown;
    highlight(language: string, text: string, ignoreIllegals: boolean): { value: string };
  };
  export default hljs;
}

declare module "highlight.js/languages/*" {
  const language: unknown;
  export default language;
}

declare module "*.css";
