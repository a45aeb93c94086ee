// The adapters: where each one is and what it has done; loading, pinning, unloading; two beside each other.
import { Component, h } from "preact";
import { json, text as callText } from "./api";
import type { ViewProps } from "./main";
import { bytesText, Dialog, IconButton, Notice, reasonOf } from "./parts";

interface Adapter {
  name: string;
  generation: number;
  digest: string | null;
  state: string;
  tier: string;
  kind: string | null;
  rank: number;
  bytes: number;
  pinned: boolean;
  in_use: number;
  loads: number;
  requests: number;
  last_use: number | null;
  errors: number;
  notes: string[];
  error: string | null;
}

interface AdapterList {
  data: Adapter[];
  resident_bytes: number;
  budget_bytes: number;
}

interface State {
  adapters: Adapter[] | null;
  residentBytes: number;
  budgetBytes: number;
  search: string;
  sort: keyof Adapter;
  isDescending: boolean;
  chosen: string[];
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
  "Files are not sent to the server. Copy them to where it runs, into its adapter root if it has one, and load them by their path.";

const kColumns: { field: keyof Adapter; title: string; isNumber?: boolean; show: (adapter: Adapter) => string }[] = [
  { field: "state", title: "State", show: (a) => a.state },
  { field: "kind", title: "Kind", show: (a) => a.kind ?? "–" },
  { field: "rank", title: "Rank", isNumber: true, show: (a) => (a.rank > 0 ? String(a.rank) : "–") },
  { field: "bytes", title: "Memory", isNumber: true, show: (a) => (a.bytes > 0 ? bytesText(a.bytes) : "–") },
  { field: "generation", title: "Generation", isNumber: true, show: (a) => (a.generation > 0 ? String(a.generation) : "–") },
  { field: "digest", title: "Content", show: (a) => a.digest?.slice(0, 12) ?? "–" },
  { field: "requests", title: "Requests", isNumber: true, show: (a) => String(a.requests) },
  { field: "errors", title: "Errors", isNumber: true, show: (a) => String(a.errors) },
];

const kCompared: { title: string; show: (adapter: Adapter) => string }[] = [
  ...kColumns.filter(({ field }) => field !== "digest"),
  { title: "Content (SHA-256)", show: (a) => a.digest ?? "–" },
  { title: "Pinned", show: (a) => (a.pinned ? "yes" : "no") },
  { title: "Loads", show: (a) => String(a.loads) },
  { title: "Last use", show: (a) => (a.last_use ? new Date(a.last_use * 1000).toLocaleString() : "–") },
  { title: "Notes", show: (a) => a.notes.join("; ") || "–" },
];

function LoadForm({
  isBusy,
  onLoad,
}: {
  isBusy: boolean;
  onLoad: (name: string, path: string, pinned: boolean, inPlace: boolean) => void;
}) {
  const submit = (event: Event) => {
    event.preventDefault();
    const form = (event.target as HTMLFormElement).elements;
    const input = (name: string) => form.namedItem(name) as HTMLInputElement;
    onLoad(input("name").value.trim(), input("path").value.trim(), input("pinned").checked, input("inplace").checked);
  };
  return (
    <form class="card load-form" aria-label="Load an adapter" onSubmit={submit}>
      <h2>Load an adapter</h2>
      <div class="row wrap">
        <label class="field">
          <span>Name</span>
          <input name="name" required autocomplete="off" />
        </label>
        <label class="field grow">
          <span>Path on the server (of a folder, or in the adapter root)</span>
          <input name="path" required autocomplete="off" />
        </label>
        <label class="check">
          <input type="checkbox" name="pinned" /> Pinned
        </label>
        <label class="check">
          <input type="checkbox" name="inplace" /> Replace one of that name
        </label>
        <button type="submit" class="primary" disabled={isBusy}>
          Load
        </button>
      </div>
    </form>
  );
}

function compareAddress(names: string[]): string {
  return `#compare?${names.map(encodeURIComponent).join(",")}`;
}

function Diff({ pair }: { pair: Adapter[] }) {
  return (
    <section class="card" aria-label="Two adapters beside each other">
      <h2>
        {pair[0].name} and {pair[1].name}
      </h2>
      <div class="table-frame" tabIndex={0} role="region" aria-label="What differs">
        <table>
          <thead>
            <tr>
              <th scope="col">What</th>
              <th scope="col">{pair[0].name}</th>
              <th scope="col">{pair[1].name}</th>
            </tr>
          </thead>
          <tbody>
            {kCompared.map(({ title, show }) => (
              <tr key={title} class={show(pair[0]) === show(pair[1]) ? "" : "changed"}>
                <th scope="row">{title}</th>
                <td>{show(pair[0])}</td>
                <td>{show(pair[1])}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="faint">
        What they do to an answer, token by token: <a href={compareAddress(pair.map((a) => a.name))}>compare their answers</a>.
      </p>
    </section>
  );
}

export class AdaptersView extends Component<ViewProps, State> {
  state: State = {
    adapters: null,
    residentBytes: 0,
    budgetBytes: 0,
    search: "",
    sort: "name",
    isDescending: false,
    chosen: [],
    toUnload: null,
    isBusy: false,
    notice: null,
    isOver: false,
  };
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isGone = false;

  componentDidMount() {
    this.poll();
  }

  componentWillUnmount() {
    this.isGone = true;
    clearTimeout(this.timer);
  }

  private poll = async () => {
    clearTimeout(this.timer);
    if (!document.hidden) await this.list();
    const count = this.state.adapters?.length ?? 0;
    if (!this.isGone) this.timer = setTimeout(this.poll, kPollMs + count * kPollMsAnAdapter);
  };

  private async list() {
    try {
      const { data, resident_bytes, budget_bytes } = await json<AdapterList>("v1/lora_adapters");
      if (this.isGone) return;
      this.setState({ adapters: data, residentBytes: resident_bytes, budgetBytes: budget_bytes });
    } catch (failure) {
      if (this.isGone) return;
      this.setState({ notice: { text: `The adapters could not be listed: ${reasonOf(failure)}`, kind: "error" } });
    }
  }

  // Does it, says how it went, and shows what is there now.
  private change = async (path: string, body: object, done: string) => {
    this.setState({ isBusy: true, notice: null });
    let notice: State["notice"] = { text: done, kind: "good" };
    try {
      await callText(path, { body });
      this.props.reload();
    } catch (failure) {
      notice = { text: reasonOf(failure), kind: "error" };
    }
    await this.list();
    this.setState({ isBusy: false, toUnload: null, notice });
  };

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

  private renderRow(adapter: Adapter, { chosen, isBusy }: State) {
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
    const { adapters, residentBytes, budgetBytes, search, chosen, toUnload, isBusy, notice, isOver } = state;
    const pair = chosen
      .map((name) => adapters?.find((adapter) => adapter.name === name))
      .filter((a): a is Adapter => a !== undefined);
    const dropped = (event: Event) => {
      event.preventDefault();
      this.setState({
        isOver: false,
        notice: {
          text: kNoUploads,
          kind: "error",
        },
      });
    };
    return (
      <div
        class={"adapters-view" + (isOver ? " over" : "")}
        onDrop={dropped}
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
                {adapters.length} adapters,
                {bytesText(residentBytes)} of {bytesText(budgetBytes)} in use
              </span>
              <span class="grow" />
              {chosen.length > 0 && (
                <a class="button-like" href={compareAddress(chosen)}>
                  Compare the answers of {chosen.length}
                </a>
              )}
            </div>
            {this.renderTable(state)}
            {pair.length === 2 && <Diff pair={pair} />}
            {pair.length < 2 && <p class="faint">Choose two to see what differs between them.</p>}
            <LoadForm isBusy={isBusy} onLoad={this.load} />
          </div>
        )}
        {toUnload && (
          <Dialog title={`Unload ${toUnload.name}?`} onClose={() => this.setState({ toUnload: null })}>
            <p>Requests in flight keep it to their end; later ones are refused. Its files stay.</p>
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
