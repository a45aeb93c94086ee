// Where a message is written, with texts attached to it.
import { Component, h } from "preact";
import { Icon, IconButton } from "./parts";
import { Attachment } from "./tree";
import { Voice, voiceLabel, voiceOf } from "./voices";

const kMostBytes = 1 << 20; // of one file: more is longer than any context

interface Props {
  voice: Voice;
  adapters: string[];
  isBusy: boolean;
  onVoice: (voice: Voice) => void;
  onSend: (content: string, attachments: Attachment[]) => void;
  onStop: () => void;
  onError: (text: string) => void;
}

interface State {
  text: string;
  files: Attachment[];
  isOver: boolean; // a file hangs over it
}

async function readText(file: File): Promise<string> {
  if (file.size > kMostBytes) throw new Error(`${file.name} has ${file.size} bytes; ${kMostBytes} at most are read`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name} is no text (UTF-8)`);
  }
}

export class Composer extends Component<Props, State> {
  state: State = { text: "", files: [], isOver: false };
  private area: HTMLTextAreaElement | null = null;

  componentDidUpdate() {
    if (!this.area) return;
    this.area.style.height = "auto";
    this.area.style.height = `${Math.min(this.area.scrollHeight, 220)}px`;
  }

  private attach = async (files: FileList | null) => {
    for (const file of [...(files ?? [])]) {
      try {
        const text = await readText(file);
        this.setState((state: State) => ({ files: [...state.files, { name: file.name, text }] }));
      } catch (failure) {
        this.props.onError((failure as Error).message);
      }
    }
  };

  private send = () => {
    const { text, files } = this.state;
    if (this.props.isBusy || (text.trim() === "" && files.length === 0)) return;
    this.props.onSend(text, files);
    this.setState({ text: "", files: [] });
  };

  private submit = (event: Event) => {
    event.preventDefault();
    this.send();
  };

  private chooseFiles = async (event: Event) => {
    const input = event.target as HTMLInputElement;
    await this.attach(input.files);
    input.value = ""; // the same file may be chosen again
  };

  private chooseVoice = (event: Event) => {
    const name = (event.target as HTMLSelectElement).value;
    if (name !== "mix") this.props.onVoice(voiceOf(name));
  };

  private onKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.send();
  };

  render({ voice, adapters, isBusy, onStop }: Props, { text, files, isOver }: State) {
    const over = (isOver: boolean) => (event: Event) => {
      event.preventDefault();
      this.setState({ isOver });
    };
    const dropped = (event: DragEvent) => {
      over(false)(event);
      this.attach(event.dataTransfer?.files ?? null);
    };
    const single = voice.length === 0 ? "" : voice.length === 1 && voice[0].scale === 1 ? voice[0].name : null;
    return (
      <form
        class={"composer" + (isOver ? " over" : "")}
        aria-label="Message"
        onSubmit={this.submit}
        onDragOver={over(true)}
        onDragLeave={over(false)}
        onDrop={dropped}
      >
        {files.length > 0 && (
          <ul class="attachments" aria-label="Attached texts">
            {files.map((file, i) => (
              <li key={String(i)}>
                <Icon name="file" /> {file.name}
                <IconButton
                  icon="close"
                  label={`Take ${file.name} away`}
                  onClick={() => this.setState({ files: files.filter((_, j) => j !== i) })}
                />
              </li>
            ))}
          </ul>
        )}
        <textarea
          id="message"
          rows={1}
          aria-label="Message"
          placeholder={`Ask ${voiceLabel(voice)} …`}
          value={text}
          ref={(element?: Element) => (this.area = (element as HTMLTextAreaElement) ?? null)}
          onKeyDown={this.onKey}
          onInput={(event: Event) => this.setState({ text: (event.target as HTMLTextAreaElement).value })}
        />
        <div class="row">
          <label class="icon-button" title="Attach texts">
            <Icon name="file" />
            <input type="file" multiple class="hidden-file" aria-label="Attach texts" onChange={this.chooseFiles} />
          </label>
          <select class="quick-voice" aria-label="Who answers" value={single ?? "mix"} onChange={this.chooseVoice}>
            <option value="" selected={single === ""}>
              base
            </option>
            {adapters.slice(0, 200).map((name) => (
              <option key={name} value={name} selected={name === single}>
                {name}
              </option>
            ))}
            {single === null && (
              <option value="mix" selected>
                {voiceLabel(voice)}
              </option>
            )}
            {single && !adapters.slice(0, 200).includes(single) && (
              <option value={single} selected>
                {single}
              </option>
            )}
          </select>
          <span class="grow" />
          {isBusy ? (
            <button type="button" class="primary" onClick={onStop}>
              <Icon name="stop" /> Stop
            </button>
          ) : (
            <button type="submit" class="primary" disabled={text.trim() === "" && files.length === 0}>
              <Icon name="up" /> Send
            </button>
          )}
        </div>
      </form>
    );
  }
}
