// One message: its text, what the model thought before, its calls of tools, and what can be done with it.
import { Component, h } from "preact";
import { ToolCall } from "./answers";
import { MarkdownText } from "./markdown_text";
import { Icon, IconButton } from "./parts";
import { Message } from "./tree";

interface Props {
  message: Message;
  // What of the message changes, so that others are not drawn again with each token.
  content: string;
  reasoning: string;
  callsText: string;
  note: string;
  siblings: string[];
  isLive: boolean;
  isLast: boolean;
  isBusy: boolean;
  onGoTo: (id: string) => void;
  onEdit: (text: string) => void;
  onAgain: () => void;
  onResult: (callId: string, text: string, isLast: boolean) => void;
}

interface State {
  draft: string | null;
  isCopied: boolean;
}

const kNames = { user: "You", assistant: "Answer", tool: "Result of the tool" };

function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

// A call; where it is the last word of the chat, its result can be given.
class CallView extends Component<{ call: ToolCall; onResult: ((text: string) => void) | null }, { result: string }> {
  state = { result: "" };

  render({ call, onResult }: { call: ToolCall; onResult: ((text: string) => void) | null }, { result }: { result: string }) {
    return (
      <div class="call">
        <div class="call-name">
          calls <code>{call.name}</code>
        </div>
        <pre tabIndex={0} role="region" aria-label={`Arguments of ${call.name}`}>
          {pretty(call.arguments)}
        </pre>
        {onResult && (
          <form
            class="row"
            onSubmit={(event: Event) => {
              event.preventDefault();
              onResult(result);
            }}
          >
            <input
              class="grow"
              aria-label={`Result of ${call.name}`}
              placeholder="What the tool gives back"
              value={result}
              onInput={(event: Event) => this.setState({ result: (event.target as HTMLInputElement).value })}
            />
            <button type="submit">Give it</button>
          </form>
        )}
      </div>
    );
  }
}

export class MessageView extends Component<Props, State> {
  state: State = { draft: null, isCopied: false };

  shouldComponentUpdate(next: Props, state: State) {
    const old = this.props;
    return (
      state !== this.state ||
      next.content !== old.content ||
      next.reasoning !== old.reasoning ||
      next.callsText !== old.callsText ||
      next.note !== old.note ||
      next.isLive !== old.isLive ||
      next.isLast !== old.isLast ||
      next.isBusy !== old.isBusy ||
      next.siblings.length !== old.siblings.length ||
      next.message !== old.message
    );
  }

  private copy = async () => {
    await navigator.clipboard.writeText(this.props.message.content);
    this.setState({ isCopied: true });
    setTimeout(() => this.setState({ isCopied: false }), 1500);
  };

  private renderDraft(draft: string) {
    const done = (event: Event) => {
      event.preventDefault();
      this.setState({ draft: null });
      this.props.onEdit(draft);
    };
    return (
      <form class="stack" onSubmit={done}>
        <textarea
          aria-label="Edit the message"
          rows={3}
          value={draft}
          onInput={(event: Event) => this.setState({ draft: (event.target as HTMLTextAreaElement).value })}
        />
        <div class="row end">
          <button type="button" class="quiet" onClick={() => this.setState({ draft: null })}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={draft.trim() === ""}>
            Ask this
          </button>
        </div>
      </form>
    );
  }

  private renderAnswer({ message, isLive, isLast, isBusy, onResult }: Props) {
    const calls = (message.calls ?? []).filter(Boolean);
    const isOpen = isLast && !isBusy && message.role === "assistant";
    return (
      <div>
        {message.reasoning && (
          <details class="thoughts" open={isLive && message.content === ""}>
            <summary>Thoughts</summary>
            <MarkdownText text={message.reasoning} isFinal={!isLive} />
          </details>
        )}
        <MarkdownText text={message.content} isFinal={!isLive} />
        {isLive && message.content === "" && !message.reasoning && (
          <span class="waiting" role="status" aria-label="Waiting for the first token" />
        )}
        {calls.map((call, i) => (
          <CallView
            key={String(i)}
            call={call}
            onResult={isOpen ? (text) => onResult(call.id, text, i === calls.length - 1) : null}
          />
        ))}
        {message.error && (
          <p class="problem" role="alert">
            {message.error}
          </p>
        )}
      </div>
    );
  }

  private renderActions({ message, siblings, isLive, isBusy, note, onGoTo, onAgain }: Props, { isCopied }: State) {
    if (isLive) return null;
    const at = siblings.indexOf(message.id);
    return (
      <footer class="message-foot">
        {siblings.length > 1 && (
          <span class="branches" role="group" aria-label="Branches">
            <IconButton icon="left" label="Branch before" disabled={at === 0} onClick={() => onGoTo(siblings[at - 1])} />
            <span>
              {at + 1} / {siblings.length}
            </span>
            <IconButton
              icon="right"
              label="Branch behind"
              disabled={at === siblings.length - 1}
              onClick={() => onGoTo(siblings[at + 1])}
            />
          </span>
        )}
        <IconButton icon="copy" label={isCopied ? "Copied" : "Copy"} onClick={this.copy} />
        {message.role === "user" && (
          <IconButton
            icon="edit"
            label="Edit, as a new branch"
            disabled={isBusy}
            onClick={() => this.setState({ draft: message.content })}
          />
        )}
        {message.role === "assistant" && (
          <IconButton icon="again" label="Answer again, as a new branch" disabled={isBusy} onClick={onAgain} />
        )}
        {note && <span class="faint">{note}</span>}
      </footer>
    );
  }

  render(props: Props, state: State) {
    const { message } = props;
    const name = message.role === "assistant" ? (message.voice ?? kNames.assistant) : kNames[message.role];
    return (
      <article class={"message " + message.role} aria-label={name}>
        <header>{name}</header>
        {state.draft !== null && this.renderDraft(state.draft)}
        {state.draft === null && message.role === "assistant" && this.renderAnswer(props)}
        {state.draft === null && message.role !== "assistant" && <div class="plain">{message.content}</div>}
        {(message.attachments ?? []).map((file, i) => (
          <details key={String(i)} class="attachment">
            <summary>
              <Icon name="file" /> {file.name}
            </summary>
            <pre tabIndex={0} role="region" aria-label={file.name}>
              {file.text}
            </pre>
          </details>
        ))}
        {this.renderActions(props, state)}
      </article>
    );
  }
}
