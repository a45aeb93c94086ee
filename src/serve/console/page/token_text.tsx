// An answer token by token: shaded by how sure the model was, the first one that differs marked, and the alternatives of
// whichever token is pointed at or walked to.
import { Component, h } from "preact";
import { Alternative, Answer, Token } from "./answers";
import { Pieces } from "./token_pieces";

interface Props {
  label: string;
  answer: Answer;
  other: { label: string; tokens: Token[] } | null; // that it is compared with
  difference: number | null;
  isShaded: boolean;
}

interface State {
  at: number | null;
}

const kShades = 6;
const kCardWidth = 400; // as in compare.css

// 0: certain.
function shadeOf(logprob: number): number {
  return Math.min(kShades - 1, Math.floor(-logprob * 1.2));
}

function percent(logprob: number): string {
  const share = Math.exp(logprob) * 100;
  return share >= 0.1 ? `${share.toFixed(1)} %` : "< 0.1 %";
}

export function visible(token: string): string {
  return token.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ | $/g, "␣") || "∅";
}

function Likeliest({ title, chosen, top }: { title: string; chosen: Token | undefined; top: Alternative[] }) {
  return (
    <div class="likeliest">
      <h3>{title}</h3>
      {chosen === undefined && <p class="faint">ended before</p>}
      <ol>
        {top.map(({ token, logprob }, i) => (
          <li key={String(i)} class={token === chosen?.token ? "chosen" : ""}>
            <code>{visible(token)}</code>
            <span>{percent(logprob)}</span>
            <span class="faint">{logprob.toFixed(3)}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}

export class TokenText extends Component<Props, State> {
  state: State = { at: null };
  private element: HTMLElement | null = null;
  private readonly pieces = new Pieces();

  private place(at: number): { left: string; top: string } {
    const piece = this.pieces.of(this.props.answer.tokens).find(({ from, to }) => at >= from && at < to);
    const token = this.element?.querySelector<HTMLElement>(`[data-at="${piece?.from}"]`);
    if (!token || !this.element) return { left: "0", top: "0" };
    const room = Math.max(0, this.element.clientWidth - kCardWidth);
    return { left: `${Math.min(token.offsetLeft, room)}px`, top: `${token.offsetTop + token.offsetHeight + 4}px` };
  }

  private pointAt = (event: Event) => {
    const at = (event.target as HTMLElement).dataset?.at;
    if (at !== undefined) this.setState({ at: Number(at) });
  };

  private onKey = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") this.setState({ at: null });
    if (step === undefined) return;
    event.preventDefault();
    const last = this.props.answer.tokens.length - 1;
    const from = this.state.at ?? this.props.difference ?? 0;
    this.setState({ at: Math.max(0, Math.min(last, this.state.at === null ? from : from + step)) });
  };

  private renderCard({ label, answer, other }: Props, at: number) {
    const token = answer.tokens[at];
    if (!token) return null;
    const beside = other?.tokens[at];
    return (
      <div class="token-card" style={this.place(at)} role="status">
        <p>
          Token {at + 1}: <code>{visible(token.token)}</code>
          {token.id >= 0 && <span class="faint"> id {token.id}</span>}
        </p>
        <div class="row at-top">
          <Likeliest title={label} chosen={token} top={token.top} />
          {other && <Likeliest title={other.label} chosen={beside} top={beside?.top ?? []} />}
        </div>
      </div>
    );
  }

  render(props: Props, { at }: State) {
    const { label, answer, difference, isShaded } = props;
    return (
      <div
        class="token-text"
        role="group"
        aria-label={`Tokens of ${label}; arrow keys walk through them`}
        tabIndex={0}
        onKeyDown={this.onKey}
        onMouseOver={this.pointAt}
        onClick={this.pointAt}
        onMouseLeave={() => this.setState({ at: null })}
        onBlur={() => this.setState({ at: null })}
        ref={(element?: Element) => (this.element = (element as HTMLElement) ?? null)}
      >
        <span class="tokens">
          {this.pieces.of(answer.tokens).map((piece) => {
            const has = (i: number | null) => i !== null && i >= piece.from && i < piece.to;
            const shade = isShaded
              ? ` shade-${shadeOf(Math.min(...answer.tokens.slice(piece.from, piece.to).map((t) => t.logprob)))}`
              : "";
            const isEnd = piece.to === answer.tokens.length && answer.finish === "stop" && !answer.text.endsWith(piece.text);
            return (
              <span
                key={String(piece.from)}
                data-at={String(piece.from)}
                class={`token${shade}${has(difference) ? " differs" : ""}${has(at) ? " at" : ""}${isEnd ? " ending" : ""}`}
              >
                {piece.text}
              </span>
            );
          })}
          {difference !== null && difference === answer.tokens.length && (
            <span class="token differs" title="the answer ends here">
              ∎
            </span>
          )}
        </span>
        {at !== null && this.renderCard(props, at)}
      </div>
    );
  }
}
