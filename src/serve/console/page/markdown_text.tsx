// An answer's markdown as a part of the page. What turns it into elements is loaded with the first one; until then it is plain
// text.
import { Component, h } from "preact";

interface Props {
  text: string;
  isFinal: boolean; // colours and formulas wait for it
}

const kPauseMs = 80; // between two drawings of an answer that grows

type Draw = (target: Element, text: string, isFinal: boolean) => void;
let draw: Draw | null = null;

export class MarkdownText extends Component<Props, {}> {
  private element: Element | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private drawnAt = 0;

  shouldComponentUpdate(next: Props) {
    if (next.text !== this.props.text || next.isFinal !== this.props.isFinal) this.schedule(next);
    return false; // its elements are not Preact's
  }

  componentDidMount() {
    this.schedule(this.props);
  }

  componentWillUnmount() {
    clearTimeout(this.timer);
    this.element = null;
  }

  private schedule(props: Props) {
    clearTimeout(this.timer);
    const wait = props.isFinal ? 0 : Math.max(0, kPauseMs - (performance.now() - this.drawnAt));
    if (wait > 0) this.timer = setTimeout(() => this.drawNow(props), wait);
    else this.drawNow(props);
  }

  private async drawNow(props: Props) {
    if (draw === null) {
      if (this.element) this.element.textContent = props.text;
      try {
        draw = (await import("./markdown")).drawMarkdown;
      } catch {
        return; // plain text stays; the connection that could not bring the rest is told elsewhere
      }
      props = this.props;
    }
    if (!this.element) return;
    this.drawnAt = performance.now();
    try {
      draw(this.element, props.text, props.isFinal);
    } catch (failure) {
      console.error(failure);
      this.element.textContent = props.text;
    }
  }

  render() {
    return <div class="markdown" ref={(element?: Element) => (this.element = element ?? null)}></div>;
  }
}
