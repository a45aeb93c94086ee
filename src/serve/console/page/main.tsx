// The page's frame: the views and how one goes from one to another, the theme, the key.
import { Component, h, render } from "preact";
import { hasKey, json, onKeyWanted, setKey } from "./api";
import { ChatView } from "./chat";
import { keep, kept } from "./kept";
import { Dialog, Icon, IconButton, IconName, Notice, reasonOf } from "./parts";
import { AdapterNames } from "./voice_picker";
import "./page.css";

const kViews = { chat: "Chat", compare: "Compare", adapters: "Adapters", engine: "Engine" };
type ViewName = keyof typeof kViews;

export interface ViewProps {
  base: string;
  adapters: string[];
  hasTemplate: boolean; // of chats; without it the model goes on from texts
  reload: () => void; // the lists of adapters have changed
}

type View = new (props?: ViewProps) => any;

const kLoaders: Record<Exclude<ViewName, "chat">, () => Promise<View>> = {
  compare: async () => (await import("./compare")).CompareView,
  adapters: async () => (await import("./adapters")).AdaptersView,
  engine: async () => (await import("./engine")).EngineView,
};

type Theme = "system" | "light" | "dark";
const kThemes: Record<Theme, { icon: IconName; next: Theme }> = {
  system: { icon: "system", next: "light" },
  light: { icon: "light", next: "dark" },
  dark: { icon: "dark", next: "system" },
};

interface State {
  view: ViewName;
  loaded: Partial<Record<ViewName, View>>;
  theme: Theme;
  base: string | null;
  adapters: string[];
  hasTemplate: boolean;
  error: string | null;
  dialog: "key" | "keys" | null;
  whyKey: string;
}

function viewOfAddress(): ViewName {
  const name = location.hash.slice(1).split("?")[0];
  return Object.hasOwn(kViews, name) ? (name as ViewName) : "chat";
}

function themeKept(): Theme {
  const theme = kept("theme");
  return theme === "light" || theme === "dark" ? theme : "system";
}

interface KeyFormProps {
  why: string;
  onDone: (key: string, inBrowser: boolean) => void;
  onForget?: () => void;
}

function skipToContent(event: Event): void {
  event.preventDefault();
  document.getElementById("main")!.focus();
}

function KeyForm({ why, onDone, onForget }: KeyFormProps) {
  const submit = (event: Event) => {
    event.preventDefault();
    const form = event.target as HTMLFormElement;
    const value = (form.elements.namedItem("key") as HTMLInputElement).value.trim();
    if (value) onDone(value, (form.elements.namedItem("keep") as HTMLInputElement).checked);
  };
  return (
    <form onSubmit={submit} class="stack">
      <p>{why}</p>
      <label class="field">
        <span>API key</span>
        <input name="key" type="password" autocomplete="off" required />
      </label>
      <label class="check">
        <input name="keep" type="checkbox" /> Keep it in this browser, not just in this tab
      </label>
      <div class="row end">
        {onForget && (
          <button type="button" class="quiet" onClick={onForget}>
            Forget the key
          </button>
        )}
        <button type="submit" class="primary">
          Use the key
        </button>
      </div>
    </form>
  );
}

const kKeyUse = "It is sent with all that this page asks. Adapters are changed with an admin's key.";

const kShortcuts = [
  ["Enter", "send; Shift+Enter begins a new line"],
  ["Esc", "stop the answer"],
  ["Alt+1 … Alt+4", "Chat, Compare, Adapters, Engine"],
  ["Ctrl+K", "search the chats"],
  ["Ctrl+Enter", "in Compare: ask all"],
  ["← →", "in an answer under Compare: from token to token"],
  ["?", "this list"],
];

class App extends Component<{}, State> {
  state: State = {
    view: viewOfAddress(),
    loaded: {},
    theme: themeKept(),
    base: null,
    adapters: [],
    hasTemplate: true,
    error: null,
    dialog: null,
    whyKey: "",
  };
  private keyGiven: (() => void) | null = null;
  private keyRefused: ((reason: Error) => void) | null = null;

  componentDidMount() {
    onKeyWanted(
      (wasWrong) =>
        new Promise((resolve, reject) => {
          this.keyGiven = resolve;
          this.keyRefused = reject;
          this.setState({
            dialog: "key",
            whyKey: wasWrong ? "The server does not know that key." : "This server asks for an API key.",
          });
        }),
    );
    addEventListener("hashchange", () => this.show(viewOfAddress()));
    addEventListener("keydown", this.onKey);
    this.show(this.state.view);
    this.loadModels();
  }

  private onKey = (event: KeyboardEvent) => {
    const index = ["Digit1", "Digit2", "Digit3", "Digit4"].indexOf(event.code);
    if (event.altKey && !event.ctrlKey && index >= 0) {
      event.preventDefault();
      location.hash = Object.keys(kViews)[index];
    }
    const isTyping = (event.target as Element).matches("input, textarea, select");
    if (event.key === "?" && !isTyping && this.state.dialog === null) this.setState({ dialog: "keys" });
  };

  private loadModels = async () => {
    try {
      const { data } = await json<{ data: { id: string; parent: string | null }[] }>("v1/models");
      const { model } = await json<{ model: { has_chat_template: boolean } }>("v1/engine");
      const adapters = data.filter((entry) => entry.parent !== null).map((entry) => entry.id);
      const base = data.find((entry) => entry.parent === null)?.id ?? "base";
      this.setState({ base, adapters, hasTemplate: model.has_chat_template, error: null });
    } catch (failure) {
      this.setState({ error: `The list of models could not be had: ${reasonOf(failure)}` });
      setTimeout(this.loadModels, 3000);
    }
  };

  private async show(view: ViewName) {
    this.setState({ view });
    document.title = view === "chat" ? "Choral" : `${kViews[view]} · Choral`;
    if (view === "chat" || this.state.loaded[view]) return;
    try {
      const loaded = await kLoaders[view]();
      this.setState((state: State) => ({ loaded: { ...state.loaded, [view]: loaded } }));
    } catch (failure) {
      this.setState({ error: `This part of the page could not be loaded: ${reasonOf(failure)}` });
    }
  }

  private switchTheme = () => {
    const theme = kThemes[this.state.theme].next;
    keep("theme", theme === "system" ? null : theme);
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    this.setState({ theme });
  };

  private giveKey = (value: string, inBrowser: boolean) => {
    setKey(value, inBrowser);
    this.setState({ dialog: null });
    if (this.keyGiven) this.keyGiven();
    else this.loadModels();
    this.keyGiven = this.keyRefused = null;
  };

  private closeDialog = () => {
    this.setState({ dialog: null });
    this.keyRefused?.(new Error("no key was given"));
    this.keyGiven = this.keyRefused = null;
  };

  private renderView({ view, loaded, base, adapters, hasTemplate }: State) {
    const props: ViewProps = { base: base ?? "base", adapters, hasTemplate, reload: this.loadModels };
    if (base === null)
      return (
        <p class="empty" role="status">
          Asking the server for its models …
        </p>
      );
    if (view === "chat") return <ChatView {...props} />;
    const Shown = loaded[view];
    return Shown ? (
      <Shown {...props} />
    ) : (
      <p class="empty" role="status">
        Loading …
      </p>
    );
  }

  render(_: {}, state: State) {
    const { view, theme, error, dialog } = state;
    return (
      <div class="frame">
        <a class="skip" href="#main" onClick={skipToContent}>
          Skip to the content
        </a>
        <header class="top">
          <span class="brand">
            <img src="console/icon.svg" alt="" width="24" height="24" /> <span>Choral</span>
          </span>
          <nav aria-label="Views">
            {(Object.keys(kViews) as ViewName[]).map((name) => (
              <a key={name} href={"#" + name} aria-current={name === view ? "page" : undefined}>
                {kViews[name]}
              </a>
            ))}
          </nav>
          <span class="top-end">
            <IconButton icon="key" label="API key" onClick={() => this.setState({ dialog: "key", whyKey: kKeyUse })} />
            <IconButton
              icon={kThemes[theme].icon}
              label={`Theme: ${theme}; change to ${kThemes[theme].next}`}
              onClick={this.switchTheme}
            />
            <button
              type="button"
              class="icon-button keyboard"
              aria-label="Keyboard"
              title="Keyboard"
              onClick={() => this.setState({ dialog: "keys" })}
            >
              ?
            </button>
          </span>
        </header>
        <main id="main" tabIndex={-1} class={"view " + view}>
          {error !== null && <Notice kind="error" text={error} onClose={() => this.setState({ error: null })} />}
          {this.renderView(state)}
        </main>
        <AdapterNames names={state.adapters} />
        {dialog === "key" && (
          <Dialog title="API key" onClose={this.closeDialog}>
            <KeyForm
              why={state.whyKey}
              onDone={this.giveKey}
              onForget={
                hasKey()
                  ? () => {
                      setKey("", false);
                      this.closeDialog();
                    }
                  : undefined
              }
            />
          </Dialog>
        )}
        {dialog === "keys" && (
          <Dialog title="Keyboard" onClose={this.closeDialog}>
            <dl class="shortcuts">
              {kShortcuts.map(([keys, what]) => (
                <div key={keys}>
                  <dt>
                    <kbd>{keys}</kbd>
                  </dt>
                  <dd>{what}</dd>
                </div>
              ))}
            </dl>
          </Dialog>
        )}
      </div>
    );
  }
}

const app = document.getElementById("app")!;
render(<App />, app);
