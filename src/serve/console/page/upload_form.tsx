// Sends an adapter's files from this computer: chosen or dropped, named, then sent with a bar that shows how far they are.
import { Component, h } from "preact";
import { bytesText, Notice } from "./parts";
import { ChosenFiles, FileToSend, withAlpha } from "./sent_files";
import type { LoadFields } from "./upload";

interface Props {
  key: string;
  room: number; // bytes
  names: string[]; // of adapters that are there
  chosen: ChosenFiles | null;
  sent: { bytes: number; of: number } | null;
  isBusy: boolean;
  onChoose: (folder: string, files: File[]) => void;
  onSend: (files: FileToSend[], fields: LoadFields) => void;
  onCancel: () => void;
}

function sizeOf(files: FileToSend[]): number {
  return files.reduce((bytes, file) => bytes + file.content.size, 0);
}

interface State {
  name: string;
  problem: string | null;
}

export class UploadForm extends Component<Props, State> {
  state: State = { name: this.props.chosen?.label ?? "", problem: null };

  private choose = (event: Event) => {
    const input = event.target as HTMLInputElement;
    const files = [...(input.files ?? [])];
    input.value = ""; // the same may be chosen again
    const folder = (files[0]?.webkitRelativePath ?? "").split("/")[0];
    // A folder comes with what is in folders of it.
    const depth = folder ? 2 : 1;
    const top = files.filter((file) => (file.webkitRelativePath || file.name).split("/").length === depth);
    if (files.length > 0) this.props.onChoose(folder, top);
  };

  private submit = (event: Event) => {
    event.preventDefault();
    const { chosen, names, room, onSend } = this.props;
    const form = (event.target as HTMLFormElement).elements;
    const input = (name: string) => form.namedItem(name) as HTMLInputElement;
    const name = this.state.name.trim();
    const inPlace = input("inplace").checked;
    const files = chosen!.config ? [...chosen!.files, withAlpha(chosen!.config, input("alpha").valueAsNumber)] : chosen!.files;
    // What the server would say only when all of it is there.
    let problem = null;
    if (names.includes(name) && !inPlace) problem = `There is an adapter ${name} already: choose to replace it, or another name.`;
    if (sizeOf(files) > room) problem = `The server has room for ${bytesText(room)} more (--store-adapters): unload what was sent.`;
    this.setState({ problem });
    if (!problem) onSend(files, { lora_name: name, pinned: input("pinned").checked, load_inplace: inPlace });
  };

  private renderFiles({ files, left, config }: ChosenFiles) {
    return (
      <div>
        <ul class="sent-files">
          {files.map(({ name, content }) => (
            <li key={name}>
              {name} <span class="faint">{bytesText(content.size)}</span>
            </li>
          ))}
        </ul>
        {left.length > 0 && <p class="faint">Left out: {left.join(", ")}.</p>}
        {config && (
          <p class="faint">
            No adapter_config.json came along. Its rank ({config.r}) and modules are told from the file; α is not in it.
          </p>
        )}
      </div>
    );
  }

  private renderFields({ chosen, sent, isBusy, onCancel }: Props, name: string) {
    const { config } = chosen!;
    const typed = (event: Event) => this.setState({ name: (event.target as HTMLInputElement).value });
    return (
      <div class="row wrap">
        <label class="field">
          <span>Name</span>
          <input required autocomplete="off" value={name} onInput={typed} />
        </label>
        {config && (
          <label class="field">
            <span>α (lora_alpha), as it was trained</span>
            <input name="alpha" type="number" required min="0" step="any" placeholder={`often ${config.r} or ${2 * config.r}`} />
          </label>
        )}
        <label class="check">
          <input type="checkbox" name="pinned" /> Pinned
        </label>
        <label class="check">
          <input type="checkbox" name="inplace" /> Replace one of that name
        </label>
        <button type="button" class="quiet" onClick={onCancel}>
          {sent ? "Stop" : "Not these"}
        </button>
        <button type="submit" class="primary" disabled={isBusy}>
          Send and load
        </button>
      </div>
    );
  }

  render(props: Props, { name, problem }: State) {
    const { chosen, sent, isBusy, room } = props;
    return (
      <form class="card stack load-form" aria-label="Send an adapter" onSubmit={this.submit}>
        <h2>Send an adapter</h2>
        {!chosen && (
          <p class="faint">
            Drop its folder here, or a .safetensors or .gguf file. There is room for {bytesText(room)} more. What is sent stays on
            the server until it is unloaded.
          </p>
        )}
        <div class="row wrap">
          <label class="button-like">
            Choose files
            <input
              type="file"
              multiple
              class="hidden-file"
              aria-label="Choose files"
              accept=".safetensors,.gguf,.json"
              disabled={isBusy}
              onChange={this.choose}
            />
          </label>
          <label class="button-like">
            Choose a folder
            <input
              type="file"
              class="hidden-file"
              aria-label="Choose a folder"
              disabled={isBusy}
              onChange={this.choose}
              ref={(element?: Element) => element && ((element as HTMLInputElement).webkitdirectory = true)}
            />
          </label>
        </div>
        {chosen && this.renderFiles(chosen)}
        {chosen && this.renderFields(props, name)}
        {problem && <Notice kind="error" text={problem} onClose={() => this.setState({ problem: null })} />}
        {sent && (
          <div class="row" role="status">
            <progress class="grow" max={String(sent.of)} value={String(sent.bytes)} aria-label="Sent so far" />
            <span class="faint number">
              {sent.bytes < sent.of ? `${bytesText(sent.bytes)} of ${bytesText(sent.of)}` : "The server loads it …"}
            </span>
          </div>
        )}
      </form>
    );
  }
}
