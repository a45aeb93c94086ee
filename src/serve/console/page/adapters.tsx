// The adapters: where each one is and what it has done; loading, pinning, unloading; two beside each other.
import { Component, h } from "preact";
import { Adapter, AdapterList, compareAddress, kColumns } from "./adapter";
import { AdapterDiff } from "./adapter_diff";
import { json, text as callText } from "./api";
import { EffectMaps } from "./effect_map";
import { LoadForm } from "./load_form";
import type { ViewProps } from "./main";
import { bytesText, Dialog, IconButton, Notice, reasonOf } from "./parts";
import { ChosenFiles, chooseFiles, droppedFiles, FileToSend } from "./sent_files";
import { LoadFields, sendAdapter } from "./upload";
import { UploadForm } from "./upload_form";

interface State {
  adapters: Adapter[] | null;
  residentBytes: number;
  budgetBytes: number;
  uploads: AdapterList["uploads"];
  toSend: ChosenFiles | null;
  sent: { bytes: number; of: number } | null; // while files are sent
  search: string;
  sort: keyof Adapter;
  isDescending: boolean;
  chosen: string[];
  effects: string[]; // whose are shown
  toUnload: Adapter | null;
  isBusy: boolean;
  notice: { text: string; kind: "error" | "good" } | null;
  isOver: boolean;
}

const kPollMs = 4000,
  kPollMsAnAdapter = 5; // a list of thousands is asked for less often
const kMostRows = 300;
const kNone = "There are no adapters. Load one below, or start the server with --adapter-root.";
const kNoUploads =
  "This server takes no files (--state-dir and --store-adapters let it). Copy them to where it runs, into its adapter root if it has " +
  "one, and load them by their path.";

export class AdaptersView extends Component<ViewProps, State> {
  state: State = {
    adapters: null,
    residentBytes: 0,
    budgetBytes: 0,
    uploads: null,
    toSend: null,
    sent: null,
    search: "",
    sort: "name",
    isDescending: false,
    chosen: [],
    effects: [],
    toUnload: null,
    isBusy: false,
    notice: null,
    isOver: false,
  };
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isGone = false;
  private stopping: AbortController | null = null; // of what is sent

  componentDidMount() {
    this.poll();
  }

  componentWillUnmount() {
    this.isGone = true;
    clearTimeout(this.timer);
    this.stopping?.abort();
  }

  private poll = async () => {
    clearTimeout(this.timer);
    if (!document.hidden) await this.list();
    const count = this.state.adapters?.length ?? 0;
    if (!this.isGone) this.timer = setTimeout(this.poll, kPollMs + count * kPollMsAnAdapter);
  };

  private async list() {
    try {
      const { data, resident_bytes, budget_bytes, uploads } = await json<AdapterList>("v1/lora_adapters");
      if (this.isGone) return;
      this.setState({ adapters: data, residentBytes: resident_bytes, budgetBytes: budget_bytes, uploads });
    } catch (failure) {
      if (this.isGone) return;
      this.setState({ notice: { text: `The adapters could not be listed: ${reasonOf(failure)}`, kind: "error" } });
    }
  }

  // Does it, says how it went, and shows what is there now. True: it went well.
  private async doing(work: () => Promise<unknown>, done: string): Promise<boolean> {
    this.setState({ isBusy: true, notice: null });
    let notice: State["notice"] = { text: done, kind: "good" };
    try {
      await work();
      this.props.reload();
    } catch (failure) {
      notice = { text: reasonOf(failure), kind: "error" };
    }
    await this.list();
    if (!this.isGone) this.setState({ isBusy: false, toUnload: null, notice });
    return notice!.kind === "good";
  }

  private change = (path: string, body: object, done: string) => this.doing(() => callText(path, { body }), done);

  private load = (name: string, path: string, pinned: boolean, inPlace: boolean) =>
    this.change(
      "v1/load_lora_adapter",
      { lora_name: name, lora_path: path, load_inplace: inPlace, pinned },
      `${name} was loaded.`,
    );

  private unload = ({ name, generation }: Adapter) =>
    this.change(
      "v1/unload_lora_adapter",
      generation > 0 ? { lora_name: name, expected_generation: generation } : { lora_name: name },
      `${name} was unloaded.`,
    );

  private pin = ({ name, pinned }: Adapter) =>
    this.change(
      `v1/${pinned ? "unpin" : "pin"}_lora_adapter`,
      { lora_name: name },
      pinned ? `${name} may leave the memory now.` : `${name} stays in memory.`,
    );

  // --- files ---

  private take = async (folder: string, files: File[]) => {
    if (!this.state.uploads) return this.setState({ notice: { text: kNoUploads, kind: "error" } });
    try {
      this.setState({ toSend: await chooseFiles(folder, files), notice: null });
    } catch (failure) {
      this.setState({ toSend: null, notice: { text: reasonOf(failure), kind: "error" } });
    }
  };

  private dropped = async (event: DragEvent) => {
    event.preventDefault();
    this.setState({ isOver: false });
    const { folder, files } = await droppedFiles(event.dataTransfer);
    await this.take(folder, files);
  };

  private send = async (files: FileToSend[], fields: LoadFields) => {
    const of = files.reduce((bytes, file) => bytes + file.content.size, 0);
    const stopping = (this.stopping = new AbortController());
    this.setState({ sent: { bytes: 0, of } });
    const onSent = (bytes: number) => !this.isGone && this.setState({ sent: { bytes, of } });
    const work = () =>
      sendAdapter(files, fields, onSent, stopping.signal).catch((failure) => {
        throw stopping.signal.aborted ? new Error("Stopped; the server keeps nothing of it.") : failure;
      });
    const isDone = await this.doing(work, `${fields.lora_name} was sent and loaded.`);
    this.stopping = null;
    if (!this.isGone) this.setState({ sent: null, toSend: isDone ? null : this.state.toSend });
  };

  // --- drawing ---

  private rows({ adapters, search, sort, isDescending }: State): Adapter[] {
    const wanted = search.trim().toLowerCase();
    const rows = (adapters ?? []).filter((adapter) => adapter.name.toLowerCase().includes(wanted));
    const order = (a: Adapter, b: Adapter) => {
      const [x, y] = [a[sort], b[sort]];
      const way = typeof x === "number" && typeof y === "number" ? x - y : String(x ?? "").localeCompare(String(y ?? ""));
      return (isDescending ? -way : way) || a.name.localeCompare(b.name);
    };
    return rows.sort(order);
  }

  private renderHead(field: keyof Adapter, title: string, isNumber: boolean | undefined, { sort, isDescending }: State) {
    const isSorted = sort === field;
    return (
      <th
        scope="col"
        key={field}
        class={isNumber ? "number" : ""}
        aria-sort={isSorted ? (isDescending ? "descending" : "ascending") : "none"}
      >
        <button
          type="button"
          class="sort"
          onClick={() => this.setState({ sort: field, isDescending: isSorted && !isDescending })}
        >
          {title}
          <span aria-hidden="true">{isSorted ? (isDescending ? " ↓" : " ↑") : ""}</span>
        </button>
      </th>
    );
  }

  private showEffect(names: string[]) {
    this.setState({ effects: names });
  }

  private renderRow(adapter: Adapter, { chosen, effects, isBusy }: State) {
    const isChosen = chosen.includes(adapter.name);
    return (
      <tr key={adapter.name}>
        <td>
          <input
            type="checkbox"
            aria-label={`Choose ${adapter.name}`}
            checked={isChosen}
            onChange={() =>
              this.setState({ chosen: isChosen ? chosen.filter((name) => name !== adapter.name) : [...chosen, adapter.name] })
            }
          />
        </td>
        <th scope="row">
          {adapter.name}
          {adapter.pinned && <span class="tag">pinned</span>}
          {adapter.error && <p class="problem">{adapter.error}</p>}
          {adapter.notes.map((note) => (
            <p class="faint" key={note}>
              {note}
            </p>
          ))}
        </th>
        {kColumns.map(({ field, isNumber, show }) => (
          <td key={field} class={isNumber ? "number" : ""}>
            {field === "state" ? (
              <span class={"state " + adapter.state.replace(/ /g, "-")}>{show(adapter)}</span>
            ) : (
              show(adapter)
            )}
          </td>
        ))}
        <td class="actions">
          <IconButton
            icon="heat"
            label={`Effect of ${adapter.name} by layer`}
            pressed={effects.includes(adapter.name)}
            onClick={() =>
              this.showEffect(
                effects.includes(adapter.name) ? effects.filter((name) => name !== adapter.name) : [...effects, adapter.name],
              )
            }
          />
          <IconButton
            icon="pin"
            label={adapter.pinned ? `Unpin ${adapter.name}` : `Pin ${adapter.name}`}
            pressed={adapter.pinned}
            disabled={isBusy}
            onClick={() => this.pin(adapter)}
          />
          <IconButton
            icon="trash"
            label={`Unload ${adapter.name}`}
            disabled={isBusy}
            onClick={() => this.setState({ toUnload: adapter })}
          />
        </td>
      </tr>
    );
  }

  private renderTable(state: State) {
    const rows = this.rows(state);
    return (
      <div class="table-frame wide" tabIndex={0} role="region" aria-label="Adapters">
        <table>
          <thead>
            <tr>
              <th scope="col">
                <span class="unseen">Choose</span>
              </th>
              {this.renderHead("name", "Name", false, state)}
              {kColumns.map(({ field, title, isNumber }) => this.renderHead(field, title, isNumber, state))}
              <th scope="col">
                <span class="unseen">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>{rows.slice(0, kMostRows).map((adapter) => this.renderRow(adapter, state))}</tbody>
        </table>
        {rows.length === 0 && <p class="faint pane-empty">{state.search ? "No adapter has that name." : kNone}</p>}
        {rows.length > kMostRows && <p class="faint">{rows.length - kMostRows} more: filter by name.</p>}
      </div>
    );
  }

  render(_: ViewProps, state: State) {
    const { adapters, residentBytes, budgetBytes, uploads, search, chosen, effects, toUnload, isBusy, notice, isOver } = state;
    const pair = chosen
      .map((name) => adapters?.find((adapter) => adapter.name === name))
      .filter((a): a is Adapter => a !== undefined);
    return (
      <div
        class={"adapters-view" + (isOver ? " over" : "")}
        onDrop={this.dropped}
        onDragLeave={() => this.setState({ isOver: false })}
        onDragOver={(event: Event) => {
          event.preventDefault();
          this.setState({ isOver: true });
        }}
      >
        <h1>Adapters</h1>
        {notice && <Notice text={notice.text} kind={notice.kind} onClose={() => this.setState({ notice: null })} />}
        {adapters === null ? (
          <p class="empty" role="status">
            Loading …
          </p>
        ) : (
          <div class="stack">
            <div class="row wrap">
              <input
                type="search"
                aria-label="Filter by name"
                placeholder="Filter by name"
                value={search}
                onInput={(event: Event) => this.setState({ search: (event.target as HTMLInputElement).value })}
              />
              <span class="faint">
                {`${adapters.length} adapters, ${bytesText(residentBytes)} of ${bytesText(budgetBytes)} in use`}
              </span>
              <span class="grow" />
              {chosen.length > 0 && (
                <a class="button-like" href={compareAddress(chosen)}>
                  Compare the answers of {chosen.length}
                </a>
              )}
            </div>
            {this.renderTable(state)}
            {effects.length > 0 && <EffectMaps names={effects} onClose={() => this.showEffect([])} />}
            {pair.length === 2 && <AdapterDiff pair={pair} onEffects={() => this.showEffect(pair.map((a) => a.name))} />}
            {pair.length < 2 && <p class="faint">Choose two to see what differs between them.</p>}
            {uploads ? (
              <UploadForm
                key={state.toSend?.label ?? ""}
                room={uploads.most_bytes - uploads.held_bytes}
                names={adapters.map((a) => a.name)}
                chosen={state.toSend}
                sent={state.sent}
                isBusy={isBusy}
                onChoose={this.take}
                onSend={this.send}
                onCancel={() => (this.stopping ? this.stopping.abort() : this.setState({ toSend: null }))}
              />
            ) : (
              <p class="faint">{kNoUploads}</p>
            )}
            <LoadForm isBusy={isBusy} onLoad={this.load} />
          </div>
        )}
        {toUnload && (
          <Dialog title={`Unload ${toUnload.name}?`} onClose={() => this.setState({ toUnload: null })}>
            <p>
              Requests in flight keep it to their end; later ones are refused. Its files stay, unless they were sent to this
              server by a client: those are deleted.
            </p>
            <div class="row end">
              <button type="button" class="quiet" onClick={() => this.setState({ toUnload: null })}>
                Keep it
              </button>
              <button type="button" class="danger" disabled={isBusy} onClick={() => this.unload(toUnload)}>
                Unload
              </button>
            </div>
          </Dialog>
        )}
      </div>
    );
  }
}
