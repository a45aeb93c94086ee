// One of the answers that are compared.
import { h } from "preact";
import { Answer, speed } from "./answers";
import { Replay } from "./difference";
import { IconButton, secondsText } from "./parts";
import { TokenText } from "./token_text";
import { VoicePicker } from "./voice_picker";
import { Voice, voiceLabel } from "./voices";

export interface PaneState {
  id: string;
  voice: Voice;
  asked: Voice; // when the answer was asked for
  body: object | null; // of the request
  answer: Answer | null;
  replay: Replay | "running" | null;
}

interface Props {
  key: string;
  pane: PaneState;
  name: string; // what it is called: in a blind test a letter
  isHidden: boolean; // blind, and not voted yet
  reference: { label: string; answer: Answer } | null;
  difference: number | null;
  isShaded: boolean;
  adapters: string[];
  isBusy: boolean;
  canVote: boolean;
  onVoice: (voice: Voice) => void;
  onRemove: (() => void) | null;
  onReplay: () => void;
  onVote: () => void;
}

function facts(answer: Answer): string {
  const parts: string[] = [];
  if (answer.usage) parts.push(`${answer.usage.completion_tokens} tokens`);
  const perSecond = speed(answer);
  if (perSecond !== null) parts.push(`${perSecond.toFixed(1)} tokens/s`);
  if (answer.firstAt !== null) parts.push(`first after ${secondsText(answer.firstAt - answer.begunAt)}`);
  if (answer.tokens.length > 0) {
    const mean = answer.tokens.reduce((sum, token) => sum + token.logprob, 0) / answer.tokens.length;
    parts.push(`mean log-probability ${mean.toFixed(3)}`);
  }
  if (answer.finish === "length") parts.push("cut off by the limit");
  return parts.join(" · ");
}

function Body({ pane, name, isHidden, reference, difference, isShaded }: Props) {
  const { answer } = pane;
  if (answer === null) return <p class="faint pane-empty">Nothing asked yet.</p>;
  return (
    <div class="pane-body">
      {answer.reasoning && (
        <details class="thoughts">
          <summary>Thoughts</summary>
          <div class="plain">{answer.reasoning}</div>
        </details>
      )}
      {answer.tokens.length > 0 ? (
        <TokenText
          label={name}
          answer={answer}
          difference={difference}
          isShaded={isShaded}
          other={reference && { label: reference.label, tokens: reference.answer.tokens }}
        />
      ) : (
        <div class="plain">{answer.text}</div>
      )}
      {answer.endedAt === null && answer.tokens.length === 0 && (
        <span class="waiting" role="status" aria-label="Waiting for the first token" />
      )}
      {answer.error && (
        <p class="problem" role="alert">
          {answer.error}
        </p>
      )}
      {answer.endedAt !== null && <p class="faint">{facts(answer)}</p>}
      {!isHidden &&
        answer.adapters.map(({ name: adapter, generation, digest }) => (
          <p class="faint" key={adapter}>
            {adapter}: generation {generation}, content <code>{digest.slice(0, 12)}</code>
          </p>
        ))}
    </div>
  );
}

export function Pane(props: Props) {
  const { pane, name, isHidden, adapters, isBusy, canVote, onVoice, onRemove, onReplay, onVote } = props;
  const { answer, replay } = pane;
  const isDone = answer !== null && answer.endedAt !== null && !answer.error;
  return (
    <section class="pane" aria-label={`Pane ${name}`}>
      <header>
        <h2>{name}</h2>
        {onRemove && <IconButton icon="close" label={`Remove the pane ${name}`} disabled={isBusy} onClick={onRemove} />}
      </header>
      {!isHidden && (
        <details class="pane-voice">
          <summary>Voice: {voiceLabel(pane.voice)}</summary>
          <VoicePicker label={`Voice of the pane ${name}`} voice={pane.voice} names={adapters} onChange={onVoice} />
        </details>
      )}
      <Body {...props} />
      {replay && replay !== "running" && (
        <p class={replay.isSame ? "proof" : "problem"} role="status">
          {replay.isSame ? "✓ " : "✗ "}
          {replay.text}
        </p>
      )}
      {isDone && (
        <footer class="row">
          <button type="button" class="quiet" disabled={isBusy || replay === "running"} onClick={onReplay}>
            {replay === "running" ? "Replaying …" : "Replay"}
          </button>
          {canVote && (
            <button type="button" onClick={onVote}>
              {name} is best
            </button>
          )}
        </footer>
      )}
    </section>
  );
}
