// One request, looked into: its prompt as the tokens that the model gets, and when each part of its answer came.
import { Component, h } from "preact";
import { Answer, ask, newAnswer, speed } from "./answers";
import { json } from "./api";
import { LineChart } from "./charts";
import { conversation } from "./conversation";
import { CheckBox, Notice, reasonOf, secondsText, TextField } from "./parts";
import { visible } from "./token_text";
import { VoicePicker } from "./voice_picker";
import { kBase, Voice, voiceFields } from "./voices";

interface Tokens {
  count: number;
  tokens: number[];
  token_strs: string[];
}

interface State {
  voice: Voice;
  prompt: string;
  isChat: boolean; // through the model's chat template
  tokens: Tokens | null;
  answer: Answer | null;
  isBusy: boolean;
  error: string | null;
}

// Vocabularies write a space as Ġ or ▁ and the end of a line as Ċ.
function spelled(text: string): string {
  return visible(text.replace(/[Ġ▁]/g, "␣").replace(/Ċ/g, "⏎"));
}

const kMostShown = 1500; // tokens
const kMostTokens = 64; // of the answer

interface Props {
  adapters: string[];
  hasTemplate: boolean;
}

export class Inspector extends Component<Props, State> {
  state: State = {
    voice: kBase,
    prompt: "What is the capital of France?",
    isChat: this.props.hasTemplate,
    tokens: null,
    answer: null,
    isBusy: false,
    error: null,
  };
  private stopping: AbortController | null = null;

  componentWillUnmount() {
    this.stopping?.abort();
  }

  private tokenize = async () => {
    const { voice, prompt, isChat } = this.state;
    this.setState({ isBusy: true, error: null });
    try {
      // Of a mix the first's: tokens that only another brings are not seen.
      const model = voice.length > 0 ? voice[0].name : "base";
      const body = isChat ? { model, messages: [{ role: "user", content: prompt }] } : { model, prompt };
      this.setState({ tokens: await json<Tokens>("tokenize", { body: { ...body, return_token_strs: true } }) });
    } catch (failure) {
      this.setState({ error: reasonOf(failure) });
    }
    this.setState({ isBusy: false });
  };

  private send = async () => {
    const { voice, prompt, isChat } = this.state;
    const answer = newAnswer();
    this.stopping = new AbortController();
    this.setState({ isBusy: true, answer, error: null });
    const body = {
      ...voiceFields(voice),
      ...conversation([{ role: "user", content: prompt }], isChat),
      temperature: 0,
      max_tokens: kMostTokens,
    };
    await ask(answer, body, () => this.setState({ answer }), this.stopping.signal);
    this.setState({ isBusy: false });
  };

  private renderTimes(answer: Answer) {
    const facts: [string, string][] = [];
    if (answer.firstAt !== null) facts.push(["First token after", secondsText(answer.firstAt - answer.begunAt)]);
    if (answer.endedAt !== null) facts.push(["Whole answer", secondsText(answer.endedAt - answer.begunAt)]);
    const perSecond = speed(answer);
    if (perSecond !== null) facts.push(["Speed", `${perSecond.toFixed(1)} tokens/s`]);
    if (answer.usage) {
      facts.push([
        "Prompt",
        `${answer.usage.prompt_tokens} tokens, ${answer.usage.prompt_tokens_details?.cached_tokens ?? 0} of them cached`,
      ]);
      facts.push(["Answer", `${answer.usage.completion_tokens} tokens, ended by ${answer.finish ?? "nothing"}`]);
    }
    if (answer.id) facts.push(["Id, as in the log", answer.id]);
    return (
      <div class="stack">
        <dl class="facts">
          {facts.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
        {answer.gaps.length > 1 && (
          <LineChart title="From piece to piece" values={answer.gaps} show={(v) => `${v.toFixed(1)} ms`} />
        )}
        {answer.error ? <Notice kind="error" text={answer.error} /> : <div class="plain">{answer.text}</div>}
      </div>
    );
  }

  render({ adapters, hasTemplate }: Props, { voice, prompt, isChat, tokens, answer, isBusy, error }: State) {
    const isEmpty = prompt.trim() === "";
    return (
      <section class="card stack" aria-label="Request inspector">
        <h2>Request inspector</h2>
        <VoicePicker
          label="Voice of the request"
          voice={voice}
          names={adapters}
          onChange={(chosen) => this.setState({ voice: chosen })}
        />
        <TextField label="Prompt" rows={2} text={prompt} onText={(text) => this.setState({ prompt: text })} />
        <div class="row wrap">
          <CheckBox label="With the chat template" isOn={isChat} disabled={!hasTemplate} onSwitch={() => this.setState({ isChat: !isChat })} />
          <span class="grow" />
          <button type="button" disabled={isBusy || isEmpty} onClick={this.tokenize}>
            Show its tokens
          </button>
          <button type="button" class="primary" disabled={isBusy || isEmpty} onClick={this.send}>
            Ask and time it
          </button>
        </div>
        {error && <Notice kind="error" text={error} onClose={() => this.setState({ error: null })} />}
        {tokens && (
          <div>
            <p class="faint">{tokens.count} tokens</p>
            <ol class="prompt-tokens" aria-label="Tokens of the prompt" tabIndex={0}>
              {tokens.tokens.slice(0, kMostShown).map((id, i) => (
                <li key={String(i)}>
                  <code>{spelled(tokens.token_strs[i])}</code>
                  <span>{id}</span>
                </li>
              ))}
            </ol>
            {tokens.count > kMostShown && <p class="faint">{tokens.count - kMostShown} more.</p>}
          </div>
        )}
        {answer && this.renderTimes(answer)}
      </section>
    );
  }
}
