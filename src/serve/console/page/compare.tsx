// The same question to several voices at once, with one seed: where their answers part, how sure each was, and which one is
// better.
import { Component, h } from "preact";
import { ask, newAnswer } from "./answers";
import { conversation, logprobFields, SaidMessage } from "./conversation";
import { compareReplay, firstDifference } from "./difference";
import { keep, keptJson } from "./kept";
import type { ViewProps } from "./main";
import { Pane, PaneState } from "./pane";
import { CheckBox, Icon, Notice, reasonOf, TextField } from "./parts";
import { isSampling, Sampling } from "./sampling";
import { SamplingFields } from "./sampling_fields";
import { votes as store } from "./store";
import { throttled } from "./throttle";
import { newId } from "./tree";
import { Vote } from "./votes";
import { VotesTable } from "./votes_table";
import { isVoice, kBase, Voice, voiceFields, voiceLabel, voiceOf } from "./voices";

const kMostPanes = 7;
const kConnections = 6; // that a browser opens to one server
const kSeed = 1;
const kLikeliest = 5; // tokens that are shown for each place
const kDrawMs = 80; // between two drawings of answers that grow

interface Question {
  prompt: string;
  system: string;
  sampling: Sampling;
}

interface State extends Question {
  panes: PaneState[];
  isBusy: boolean;
  isShaded: boolean;
  isBlind: boolean;
  order: number[]; // of the panes as they are shown
  voted: string | null; // what the vote on these answers was
  votes: Vote[];
  error: string | null;
}

function newPane(voice: Voice): PaneState {
  return { id: newId(), voice, asked: voice, body: null, answer: null, replay: null };
}

// The adapters view sends names along: #compare?a,b
function voicesOfAddress(): Voice[] {
  const names = location.hash.split("?")[1];
  return names ? names.split(",").map((name) => voiceOf(decodeURIComponent(name))) : [];
}

function firstVoices(adapters: string[]): Voice[] {
  const asked = voicesOfAddress();
  const saved = keptJson<unknown[]>("compare.voices", []);
  const isKnown = (voice: Voice) => voice.every((part) => adapters.includes(part.name));
  const known = Array.isArray(saved) ? saved.filter(isVoice).filter(isKnown) : [];
  if (asked.length > 0) return [kBase, ...asked].slice(0, kMostPanes);
  if (known.length > 1) return known.slice(0, kMostPanes);
  return [kBase, ...adapters.slice(0, kMostPanes - 1).map(voiceOf)];
}

function firstQuestion(): Question {
  const saved = keptJson<any>("compare.question", null);
  if (typeof saved?.prompt === "string" && typeof saved.system === "string" && isSampling(saved.sampling)) return saved;
  return { prompt: "What is the capital of France?", system: "", sampling: { temperature: 0, seed: kSeed, max_tokens: 120 } };
}

function shuffled(count: number): number[] {
  const order = [...Array(count).keys()];
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

function messagesOf({ system, prompt }: Question): SaidMessage[] {
  return [...(system.trim() ? [{ role: "system", content: system }] : []), { role: "user", content: prompt }];
}

// Of the first pane where the earliest of the others leaves it, of the others where they leave the first.
function differenceOf(panes: PaneState[], index: number, first: number): number | null {
  const others = index === first ? panes.filter((_, i) => i !== index) : [panes[first]];
  const places = others.map(
    (other) => panes[index].answer && other.answer && firstDifference(panes[index].answer!, other.answer),
  );
  const parted = places.filter((place): place is number => typeof place === "number");
  return parted.length > 0 ? Math.min(...parted) : null;
}

function canVoteOn({ panes, isBusy, voted }: State): boolean {
  const isGood = ({ answer }: PaneState) => answer !== null && answer.endedAt !== null && !answer.error && !answer.isStopped;
  return !isBusy && voted === null && panes.length > 1 && panes.every(isGood);
}

function Legend() {
  return (
    <span class="legend" aria-hidden="true">
      sure{" "}
      {[0, 1, 2, 3, 4, 5].map((shade) => (
        <i key={String(shade)} class={`shade-${shade}`} />
      ))}{" "}
      unsure
      <i class="differs" /> first that differs
    </span>
  );
}

export class CompareView extends Component<ViewProps, State> {
  state: State = {
    ...firstQuestion(),
    panes: firstVoices(this.props.adapters).map(newPane),
    isBusy: false,
    isShaded: true,
    isBlind: false,
    order: [],
    voted: null,
    votes: [],
    error: null,
  };
  private stopping: AbortController | null = null;
  private asked: { messages: SaidMessage[]; seed: number } | null = null; // what the answers are to
  private isGone = false;

  async componentDidMount() {
    addEventListener("keydown", this.onKey);
    try {
      this.setState({ votes: await store.all() });
    } catch (failure) {
      this.setState({ error: `The votes that this browser keeps could not be read: ${reasonOf(failure)}` });
    }
  }

  componentWillUnmount() {
    removeEventListener("keydown", this.onKey);
    this.isGone = true;
    this.stopping?.abort();
  }

  private onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) this.stopping?.abort();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.askAll();
  };

  private draw = throttled(() => {
    if (!this.isGone) this.setState({ panes: this.state.panes });
  }, kDrawMs);

  private question(fields: Partial<Question>) {
    this.setState(fields as any, () => {
      const { prompt, system, sampling } = this.state;
      keep("compare.question", JSON.stringify({ prompt, system, sampling }));
    });
  }

  private setPanes(panes: PaneState[]) {
    const isOrdered = panes.length === this.state.order.length;
    this.setState({ panes, order: isOrdered ? this.state.order : panes.map((_, i) => i) });
    keep("compare.voices", JSON.stringify(panes.map((pane) => pane.voice)));
  }

  // --- asking ---

  // All requests leave in one turn, so that they share the engine's steps.
  private askAll = async () => {
    const { panes, isBlind, isBusy, prompt, sampling } = this.state;
    if (isBusy || prompt.trim() === "") return;
    const stopping = (this.stopping = new AbortController());
    const seed = sampling.seed ?? kSeed;
    this.setState({ isBusy: true, voted: null, error: null, order: isBlind ? shuffled(panes.length) : panes.map((_, i) => i) });
    const { hasTemplate } = this.props;
    const messages = messagesOf(this.state);
    this.asked = { messages, seed };
    await Promise.all(
      panes.map((pane) => {
        pane.answer = newAnswer();
        pane.asked = pane.voice;
        pane.replay = null;
        pane.body = {
          ...voiceFields(pane.voice),
          ...sampling,
          seed,
          ...conversation(messages, hasTemplate),
          ...logprobFields(kLikeliest, hasTemplate),
        };
        return ask(pane.answer, pane.body, this.draw, stopping.signal);
      }),
    );
    this.stopping = null;
    if (!this.isGone) this.setState({ isBusy: false });
    this.props.reload();
  };

  private replay = async (pane: PaneState) => {
    pane.replay = "running";
    this.draw();
    const again = newAnswer();
    const stopping = (this.stopping = new AbortController());
    await ask(again, pane.body!, () => undefined, stopping.signal);
    this.stopping = null;
    pane.replay = await compareReplay(pane.answer!, again);
    this.draw();
  };

  // --- votes ---

  private vote = async (best: number | null) => {
    const { panes } = this.state;
    const vote: Vote = {
      id: newId(),
      time: Date.now(),
      ...this.asked!,
      best,
      answers: panes.map((pane) => ({ voice: voiceLabel(pane.asked), text: pane.answer!.text })),
    };
    this.setState({
      votes: [...this.state.votes, vote],
      voted: best === null ? "none is better" : `${vote.answers[best].voice} is best`,
    });
    try {
      await store.put(vote);
    } catch (failure) {
      this.setState({ error: `The vote could not be kept: ${reasonOf(failure)}` });
    }
  };

  private dropVotes = async () => {
    for (const vote of this.state.votes) await store.drop(vote.id);
    this.setState({ votes: [] });
  };

  // --- drawing ---

  private renderQuestion({ prompt, system, sampling, panes, isBusy, isShaded, isBlind }: State, adapters: string[]) {
    const has = (name: string) => panes.some((pane) => voiceLabel(pane.voice) === (name || "base"));
    const toggle = (name: string) => {
      if (has(name)) this.setPanes(panes.filter((pane) => voiceLabel(pane.voice) !== (name || "base")));
      else this.setPanes([...panes, newPane(voiceOf(name))]);
    };
    const isFull = panes.length >= kMostPanes;
    return (
      <form
        class="compare-form"
        aria-label="Question"
        onSubmit={(event: Event) => {
          event.preventDefault();
          this.askAll();
        }}
      >
        <div class="row at-top">
          <TextField label="Question" rows={2} text={prompt} onText={(text) => this.question({ prompt: text })} />
          {isBusy ? (
            <button type="button" class="primary ask" onClick={() => this.stopping?.abort()}>
              <Icon name="stop" /> Stop
            </button>
          ) : (
            <button type="submit" class="primary ask" disabled={prompt.trim() === "" || panes.length === 0}>
              <Icon name="send" /> Ask all {panes.length}
            </button>
          )}
        </div>
        <div class="chips" role="group" aria-label="Who answers">
          {["", ...adapters.slice(0, 24)].map((name) => (
            <button
              type="button"
              key={name}
              class="chip"
              aria-pressed={String(has(name))}
              disabled={isBusy || (isFull && !has(name))}
              onClick={() => toggle(name)}
            >
              {name || "base"}
            </button>
          ))}
          <button
            type="button"
            class="quiet"
            disabled={isBusy || isFull}
            onClick={() => this.setPanes([...panes, newPane(kBase)])}
          >
            + pane
          </button>
        </div>
        <div class="row wrap">
          <CheckBox label="Shade by log-probability" isOn={isShaded} onSwitch={() => this.setState({ isShaded: !isShaded })} />
          <Legend />
          <CheckBox
            label="Blind"
            isOn={isBlind}
            disabled={isBusy}
            onSwitch={() => this.setState({ isBlind: !isBlind, voted: null })}
          />
          <span class="grow" />
          <details class="more">
            <summary>System prompt and sampling</summary>
            <TextField
              label="System prompt"
              rows={2}
              text={system}
              placeholder="none"
              onText={(text) => this.question({ system: text })}
            />
            <SamplingFields sampling={sampling} onChange={(next) => this.question({ sampling: next })} />
          </details>
        </div>
        {panes.length > kConnections && (
          <p class="faint">
            A browser opens {kConnections} connections to a server, so the last pane begins when another ends. Its answer is the
            same: no answer depends on what shares its batch.
          </p>
        )}
      </form>
    );
  }

  private renderPane(state: State, index: number, shownAt: number) {
    const { panes, isBusy, isShaded, isBlind, voted } = state;
    const pane = panes[index];
    const isAsked = pane.answer !== null;
    const isHidden = isBlind && isAsked && voted === null;
    const nameOf = (i: number, at: number) =>
      isHidden ? String.fromCharCode(65 + at) : voiceLabel(panes[i].answer ? panes[i].asked : panes[i].voice);
    const first = state.order[0] ?? 0;
    const reference = index === first ? panes.find((other, i) => i !== first && other.answer) : panes[first];
    const at = reference ? panes.indexOf(reference) : -1;
    const other = reference?.answer ? { label: nameOf(at, state.order.indexOf(at)), answer: reference.answer } : null;
    return (
      <Pane
        key={pane.id}
        pane={pane}
        name={nameOf(index, shownAt)}
        isHidden={isHidden}
        reference={other}
        difference={differenceOf(panes, index, first)}
        isShaded={isShaded}
        adapters={this.props.adapters}
        isBusy={isBusy}
        canVote={canVoteOn(state)}
        onVoice={(voice) => {
          pane.voice = voice;
          this.setPanes(panes);
        }}
        onRemove={panes.length > 1 && !isHidden ? () => this.setPanes(panes.filter((p) => p !== pane)) : null}
        onReplay={() => this.replay(pane)}
        onVote={() => this.vote(index)}
      />
    );
  }

  render({ adapters }: ViewProps, state: State) {
    const { panes, voted, votes, error } = state;
    const order = state.order.length === panes.length ? state.order : panes.map((_, i) => i);
    return (
      <div class="compare-view">
        <h1>Compare</h1>
        {this.renderQuestion(state, adapters)}
        {error && <Notice kind="error" text={error} onClose={() => this.setState({ error: null })} />}
        {canVoteOn(state) && (
          <div class="row vote">
            <span>Which answer is best? Say so in its pane, or</span>
            <button type="button" onClick={() => this.vote(null)}>
              none is better
            </button>
          </div>
        )}
        {voted && (
          <p class="proof" role="status">
            Your vote is kept: {voted}.
          </p>
        )}
        <div class="panes">{order.map((index, at) => this.renderPane({ ...state, order }, index, at))}</div>
        <VotesTable votes={votes} onDrop={this.dropVotes} />
      </div>
    );
  }
}
