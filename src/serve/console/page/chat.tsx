// Chats: their list, the one that is read, and what is asked in it.
import { Component, h } from "preact";
import { Answer, ask, newAnswer, speed } from "./answers";
import { ChatList } from "./chat_list";
import { ChatSettings } from "./chat_settings";
import { Composer } from "./composer";
import { conversation } from "./conversation";
import type { ViewProps } from "./main";
import { MessageView } from "./message";
import { Dialog, IconButton, Notice, reasonOf, save, secondsText } from "./parts";
import { chats as store, isKept } from "./store";
import { throttled } from "./throttle";
import {
  add,
  Attachment,
  branch,
  Chat,
  chatsFile,
  childrenOf,
  goTo,
  includes,
  Message,
  newChat,
  newId,
  readChatsFile,
  requestMessages,
} from "./tree";
import { voiceFields, voiceLabel } from "./voices";

const kShownAtOnce = 60; // messages of a long chat

interface State {
  all: Chat[]; // newest first
  chat: Chat;
  shown: number;
  live: Message | null; // being answered
  search: string;
  listOpen: boolean;
  settingsOpen: boolean;
  toDrop: Chat | null;
  notice: { text: string; kind: "error" | "note" } | null;
}

function noteOf(answer: Answer): string {
  const parts = [];
  if (answer.usage) parts.push(`${answer.usage.completion_tokens} tokens`);
  const perSecond = speed(answer);
  if (perSecond !== null) parts.push(`${perSecond.toFixed(1)} tokens/s`);
  if (answer.firstAt !== null) parts.push(`first after ${secondsText(answer.firstAt - answer.begunAt)}`);
  if (answer.finish === "length") parts.push("cut off by the limit of tokens");
  if (answer.isStopped) parts.push("stopped");
  return parts.join(" · ");
}

function requestFields(chat: Chat): object {
  const fields: Record<string, unknown> = { ...voiceFields(chat.voice), ...chat.sampling };
  if (chat.tools.trim() !== "") fields.tools = JSON.parse(chat.tools);
  return fields;
}

export class ChatView extends Component<ViewProps, State> {
  state: State = {
    all: [],
    chat: newChat(),
    shown: kShownAtOnce,
    live: null,
    search: "",
    listOpen: false,
    settingsOpen: false,
    toDrop: null,
    notice: null,
  };
  private stopping: AbortController | null = null;
  private log: HTMLElement | null = null;
  private followsEnd = true;
  private isGone = false;

  async componentDidMount() {
    addEventListener("keydown", this.onKey);
    try {
      const all = (await store.all()).sort((a, b) => b.changed - a.changed);
      this.setState({ all, chat: all[0] ?? this.state.chat }, () => this.toEnd());
      if (!(await isKept())) this.tell("This browser keeps no chats (a private window?): they end with this page.", "note");
    } catch (failure) {
      this.tell(`The chats that this browser keeps could not be read: ${reasonOf(failure)}`);
    }
  }

  componentWillUnmount() {
    removeEventListener("keydown", this.onKey);
    this.isGone = true;
    this.stopping?.abort();
  }

  componentDidUpdate() {
    if (this.followsEnd) this.toEnd();
  }

  private toEnd() {
    if (this.log) this.log.scrollTop = this.log.scrollHeight;
  }

  private tell(text: string, kind: "error" | "note" = "error") {
    if (!this.isGone) this.setState({ notice: { text, kind } });
  }

  private onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape" && this.stopping && !document.querySelector("dialog[open]")) this.stopping.abort();
    if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.setState({ listOpen: true }, () => document.getElementById("chat-search")?.focus());
    }
  };

  // --- the chat that is read ---

  private keepChat = (chat: Chat) => {
    const all = [chat, ...this.state.all.filter((other) => other.id !== chat.id)].sort((a, b) => b.changed - a.changed);
    if (!this.isGone) this.setState({ all });
    store.put(chat).catch((failure) => this.tell(`The chat could not be kept: ${reasonOf(failure)}`));
  };

  private open = (chat: Chat) => {
    this.stopping?.abort();
    this.followsEnd = true;
    this.setState({ chat, shown: kShownAtOnce, listOpen: false });
  };

  private change = (fields: Partial<Chat>) => {
    const chat = Object.assign(this.state.chat, fields);
    this.setState({ chat });
    if (chat.leaf !== null) this.keepChat(chat);
  };

  private goTo = (id: string) => {
    this.followsEnd = false;
    goTo(this.state.chat, id);
    this.keepChat(this.state.chat);
  };

  // --- questions and answers ---

  private say = (parent: string | null, content: string, attachments: Attachment[]) => {
    const message: Message = { id: newId(), parent, role: "user", content };
    if (attachments.length > 0) message.attachments = attachments;
    add(this.state.chat, message);
    this.answer(message.id);
  };

  private giveResult = (parent: string, callId: string, content: string, isLast: boolean) => {
    const message = add(this.state.chat, { id: newId(), parent, role: "tool", content, callId });
    if (isLast) this.answer(message.id);
    else this.keepChat(this.state.chat);
  };

  private answer = async (parent: string) => {
    const { chat } = this.state;
    let fields;
    try {
      fields = { ...requestFields(chat), ...conversation(requestMessages(chat, parent), this.props.hasTemplate) };
    } catch (failure) {
      return this.tell(`The tools of this chat are no JSON: ${reasonOf(failure)}`);
    }
    this.stopping?.abort();
    const stopping = (this.stopping = new AbortController());
    const answer = newAnswer();
    const draw = throttled(() => !this.isGone && this.setState({ chat }), 40);
    const message = add(chat, { id: newId(), parent, role: "assistant", content: "", voice: voiceLabel(chat.voice) });
    this.followsEnd = true;
    this.setState({ live: message });
    this.keepChat(chat);
    await ask(
      answer,
      fields,
      () => {
        message.content = answer.text;
        if (answer.reasoning) message.reasoning = answer.reasoning;
        if (answer.calls.length > 0) message.calls = answer.calls;
        draw();
      },
      stopping.signal,
    );
    message.note = noteOf(answer);
    if (answer.error) message.error = answer.error;
    if (this.stopping === stopping) {
      this.stopping = null;
      if (!this.isGone) this.setState({ live: null });
    }
    this.keepChat(chat);
  };

  // --- files, and the end of a chat ---

  private importFile = async (file: File) => {
    try {
      const read = readChatsFile(await file.text());
      const known = new Map(this.state.all.map((chat) => [chat.id, chat.changed]));
      const fresh = read.filter((chat) => chat.changed > (known.get(chat.id) ?? -1));
      for (const chat of fresh) await store.put(chat);
      const all = (await store.all()).sort((a, b) => b.changed - a.changed);
      this.setState({ all, chat: fresh[0] ?? this.state.chat });
      const old = read.length - fresh.length;
      this.tell(`${fresh.length} chats were imported${old > 0 ? `; ${old} are here already` : ""}.`, "note");
    } catch (failure) {
      this.tell(`Nothing was imported: ${reasonOf(failure)}`);
    }
  };

  private drop = async (chat: Chat) => {
    const all = this.state.all.filter((other) => other.id !== chat.id);
    if (chat === this.state.chat) this.stopping?.abort();
    this.setState({ all, toDrop: null, chat: chat === this.state.chat ? (all[0] ?? newChat()) : this.state.chat });
    await store.drop(chat.id).catch((failure) => this.tell(`The chat could not be deleted: ${reasonOf(failure)}`));
  };

  private renderMessages(chat: Chat, shown: number, live: Message | null) {
    const messages = branch(chat);
    const children = childrenOf(chat);
    const first = Math.max(0, messages.length - shown);
    const rows = messages
      .slice(first)
      .map((message) => (
        <MessageView
          key={message.id}
          message={message}
          content={message.content}
          reasoning={message.reasoning ?? ""}
          isLive={message === live}
          siblings={children.get(message.parent)!.map((m) => m.id)}
          isLast={message.id === chat.leaf}
          isBusy={live !== null}
          callsText={JSON.stringify(message.calls ?? [])}
          note={message.note ?? ""}
          onGoTo={this.goTo}
          onEdit={(text) => this.say(message.parent, text, message.attachments ?? [])}
          onAgain={() => this.answer(message.parent!)}
          onResult={(id, text, isLast) => this.giveResult(chat.leaf!, id, text, isLast)}
        />
      ));
    return (
      <div
        class="messages"
        role="log"
        aria-label="Conversation"
        aria-busy={String(live !== null)}
        tabIndex={0}
        ref={(element?: Element) => (this.log = (element as HTMLElement) ?? null)}
        onScroll={(event: Event) => {
          const log = event.target as HTMLElement;
          this.followsEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
        }}
      >
        {first > 0 && (
          <button
            type="button"
            class="quiet earlier"
            onClick={() => {
              this.followsEnd = false;
              this.setState({ shown: shown + kShownAtOnce });
            }}
          >
            Show earlier messages ({first})
          </button>
        )}
        {rows}
        {messages.length === 0 && (
          <div class="welcome">
            <h1>One base, many voices</h1>
            <p>
              Ask the base or any adapter here. Under <a href="#compare">Compare</a> several answer the same question at once.
            </p>
            {!this.props.hasTemplate && <p>This model has no chat template: it goes on from what is written.</p>}
          </div>
        )}
      </div>
    );
  }

  render({ adapters }: ViewProps, state: State) {
    const { all, chat, shown, live, search, listOpen, settingsOpen, toDrop, notice } = state;
    const found = search.trim() === "" ? all : all.filter((other) => includes(other, search.trim()));
    return (
      <div class="chat-view">
        <ChatList
          chats={found}
          current={chat.id}
          search={search}
          isOpen={listOpen}
          onSearch={(text) => this.setState({ search: text })}
          onOpen={this.open}
          onNew={() => this.open(newChat())}
          onDrop={(dropped) => this.setState({ toDrop: dropped })}
          onExport={() => save("choral-chats.json", "application/json", chatsFile(all))}
          onImport={this.importFile}
          onClose={() => this.setState({ listOpen: false })}
        />
        <section class="conversation" aria-label="Chat">
          <div class="conversation-head">
            <IconButton
              icon="menu"
              label="Chats"
              class="list-switch"
              expanded={listOpen}
              onClick={() => this.setState({ listOpen: !listOpen })}
            />
            <h1 class="chat-title">{chat.title || "New chat"}</h1>
            <span class="voice-label">{voiceLabel(chat.voice)}</span>
            <IconButton
              icon="tune"
              label="Voice, system prompt and sampling"
              expanded={settingsOpen}
              onClick={() => this.setState({ settingsOpen: !settingsOpen })}
            />
          </div>
          {settingsOpen && <ChatSettings chat={chat} adapters={adapters} onChange={this.change} />}
          {notice && <Notice text={notice.text} kind={notice.kind} onClose={() => this.setState({ notice: null })} />}
          {this.renderMessages(chat, shown, live)}
          <Composer
            key={chat.id}
            voice={chat.voice}
            adapters={adapters}
            isBusy={live !== null}
            onVoice={(voice) => this.change({ voice })}
            onSend={(content, files) => this.say(chat.leaf, content, files)}
            onStop={() => this.stopping?.abort()}
            onError={(text) => this.tell(text)}
          />
        </section>
        {toDrop && (
          <Dialog title="Delete this chat?" onClose={() => this.setState({ toDrop: null })}>
            <p>“{toDrop.title || "New chat"}” is gone for good then, with all its branches.</p>
            <div class="row end">
              <button type="button" class="quiet" onClick={() => this.setState({ toDrop: null })}>
                Keep it
              </button>
              <button type="button" class="danger" onClick={() => this.drop(toDrop)}>
                Delete
              </button>
            </div>
          </Dialog>
        )}
      </div>
    );
  }
}
