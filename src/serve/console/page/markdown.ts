// Markdown, formulas and code as elements. What comes of a model's words goes through DOMPurify; pictures of other servers are
// links, since loading one would tell that server what was said.
import DOMPurify from "dompurify";
import { marked } from "marked";

const kFormulas: { begin: string; pattern: RegExp; isBlock: boolean }[] = [
  { begin: "$$", pattern: /^\$\$([\s\S]+?)\$\$/, isBlock: true },
  { begin: "\\[", pattern: /^\\\[([\s\S]+?)\\\]/, isBlock: true },
  { begin: "\\(", pattern: /^\\\(([\s\S]+?)\\\)/, isBlock: false },
  { begin: "$", pattern: /^\$(?=\S)((?:[^$\\\n]|\\.)*?[^\s$\\])\$(?!\d)/, isBlock: false },
];

function escaped(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}

function formula(level: "block" | "inline") {
  const forms = level === "block" ? kFormulas.filter((form) => form.isBlock) : kFormulas;
  return {
    name: level + "Formula",
    level,
    start: (source: string) => {
      const places = forms.map((form) => source.indexOf(form.begin)).filter((at) => at >= 0);
      return places.length > 0 ? Math.min(...places) : undefined;
    },
    tokenizer: (source: string) => {
      for (const form of forms) {
        const found = form.pattern.exec(source);
        if (found) return { type: level + "Formula", raw: found[0], text: found[1], isBlock: form.isBlock };
      }
      return undefined;
    },
    renderer: (token: any) => `<span class="formula${token.isBlock ? " block" : ""}">${escaped(token.text)}</span>`,
  };
}

// HTML that a model wrote is text, but for elements without attributes that markdown has no marks for.
const kPlainTag = /^<\/?(?:b|br|del|em|i|kbd|s|strong|sub|sup|u)\s*\/?>$/i;

marked.use({
  gfm: true,
  breaks: true,
  headerIds: false,
  mangle: false,
  extensions: [formula("block"), formula("inline")] as any,
  renderer: {
    html: (html: string) => (kPlainTag.test(html.trim()) ? html : escaped(html)),
    image: (href: string | null, _: string | null, text: string) =>
      `<a href="${escaped(href ?? "")}">picture: ${escaped(text || href || "")}</a>`,
    heading: (text: string, level: number) => `<h${Math.min(level + 2, 6)}>${text}</h${Math.min(level + 2, 6)}>`,
    // below the page's own
  },
} as any);

const kAllowed = {
  ALLOWED_TAGS: [
    "a",
    "b",
    "blockquote",
    "br",
    "code",
    "del",
    "div",
    "em",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "i",
    "input",
    "kbd",
    "li",
    "ol",
    "p",
    "pre",
    "s",
    "span",
    "strong",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "u",
    "ul",
  ],
  ALLOWED_ATTR: ["align", "checked", "class", "disabled", "href", "start", "type"],
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true as const,
};

// --- code ---

async function colour(code: HTMLElement, language: string): Promise<void> {
  const { coloured } = await import("./code");
  const html = coloured(code.textContent ?? "", language);
  if (html === null) return;
  code.replaceChildren(
    DOMPurify.sanitize(html, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true }),
  );
}

function frameCode(pre: HTMLElement, isFinal: boolean): void {
  const code = pre.querySelector("code");
  if (!code) return;
  const language = /language-([\w+#-]+)/.exec(code.className)?.[1] ?? "";
  pre.tabIndex = 0; // it scrolls
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", language ? `Code, ${language}` : "Code");
  if (!isFinal) return;
  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "copy-code quiet";
  copy.textContent = "Copy";
  copy.onclick = async () => {
    await navigator.clipboard.writeText(code.textContent ?? "");
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  };
  const frame = document.createElement("div");
  frame.className = "code-frame";
  pre.replaceWith(frame);
  frame.append(pre, copy);
  if (language) colour(code, language).catch(() => undefined);
}

// --- formulas ---

async function drawFormulas(spans: HTMLElement[]): Promise<void> {
  const { drawFormula } = await import("./formulas");
  for (const span of spans) drawFormula(span, span.textContent ?? "", span.classList.contains("block"));
}

export function drawMarkdown(target: Element, text: string, isFinal: boolean): void {
  const fragment = DOMPurify.sanitize(marked.parse(text), kAllowed) as unknown as DocumentFragment;
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const box of fragment.querySelectorAll("input")) {
    if (box.type === "checkbox") box.setAttribute("aria-label", box.checked ? "done" : "not done");
    else box.remove();
  }
  fragment.querySelectorAll("pre").forEach((pre) => frameCode(pre, isFinal));
  target.replaceChildren(fragment);
  const formulas = [...target.querySelectorAll<HTMLElement>("span.formula")];
  if (formulas.length > 0) drawFormulas(formulas).catch(() => undefined);
}
