// Formulas by KaTeX as MathML, which browsers draw and screen readers read; so no fonts are sent along.
import katex from "katex";

export function drawFormula(target: HTMLElement, tex: string, isBlock: boolean): void {
  try {
    katex.render(tex, target, {
      output: "mathml",
      displayMode: isBlock,
      throwOnError: true,
      trust: false,
      maxExpand: 200,
      maxSize: 50,
      strict: "ignore",
    });
  } catch {
    target.textContent = tex; // half a formula, or none
  }
}
