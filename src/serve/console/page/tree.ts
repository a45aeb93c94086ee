// A chat as a tree: an edited question and a regenerated answer are siblings of what they stand for, and `leaf` says which
// branch is read.
import { ToolCall } from "./answers";
import { SaidMessage } from "./conversation";
import { isSampling, Sampling } from "./sampling";
import { isVoice, kBase, Voice } from "./voices";

export type Role = "user" | "assistant" | "tool";

export interface Attachment {
  name: string;
  text: string;
}

export interface Message {
  id: string;
  parent: string | null;
  role: Role;
  content: string;
  attachments?: Attachment[];
  reasoning?: string;
  calls?: ToolCall[];
  callId?: string; // of the call that a tool's result answers
  voice?: string; // label of who answered
  note?: string; // tokens and times
  error?: string;
}

export interface Chat {
  id: string;
  title: string;
  changed: number; // Unix time in milliseconds
  messages: Record<string, Message>;
  leaf: string | null;
  voice: Voice;
  system: string;
  sampling: Sampling;
  tools: string; // JSON, as it was typed
}

let count = 0;
export function newId(): string {
  return `${Date.now().toString(36)}-${(++count).toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
}

export function newChat(): Chat {
  return {
    id: newId(),
    title: "",
    changed: Date.now(),
    messages: {},
    leaf: null,
    voice: kBase,
    system: "",
    sampling: {},
    tools: "",
  };
}

// From the first message to the leaf.
export function branch(chat: Chat, leaf = chat.leaf): Message[] {
  const path: Message[] = [];
  for (
    let at = leaf === null ? undefined : chat.messages[leaf];
    at;
    at = at.parent === null ? undefined : chat.messages[at.parent]
  )
    path.push(at);
  return path.reverse();
}

// Siblings by parent, each in the order they came.
export function childrenOf(chat: Chat): Map<string | null, Message[]> {
  const children = new Map<string | null, Message[]>();
  for (const message of Object.values(chat.messages)) {
    const list = children.get(message.parent);
    if (list) list.push(message);
    else children.set(message.parent, [message]);
  }
  return children;
}

// Reads the branch that goes through the message, down its newest children.
export function goTo(chat: Chat, id: string): void {
  const children = childrenOf(chat);
  let leaf = id;
  for (let below = children.get(leaf); below; below = children.get(leaf)) leaf = below[below.length - 1].id;
  chat.leaf = leaf;
}

export function add(chat: Chat, message: Message): Message {
  chat.messages[message.id] = message;
  chat.leaf = message.id;
  chat.changed = Date.now();
  if (chat.title === "" && message.role === "user") chat.title = message.content.trim().replace(/\s+/g, " ").slice(0, 80);
  return message;
}

function contentOf(message: Message): string {
  const files = (message.attachments ?? []).map(({ name, text }) => `\n\n[${name}]\n\`\`\`\n${text}\n\`\`\``);
  return message.content + files.join("");
}

// The conversation up to the leaf, as a request has it. Answers that broke off before their first word are left out.
export function requestMessages(chat: Chat, leaf: string | null): SaidMessage[] {
  const messages: SaidMessage[] = chat.system.trim() === "" ? [] : [{ role: "system", content: chat.system }];
  for (const message of branch(chat, leaf)) {
    if (message.role === "user") messages.push({ role: "user", content: contentOf(message) });
    if (message.role === "tool") messages.push({ role: "tool", tool_call_id: message.callId, content: message.content });
    if (message.role !== "assistant") continue;
    const calls = (message.calls ?? []).map(({ id, name, arguments: text }) => ({
      id,
      type: "function",
      function: { name, arguments: text },
    }));
    if (calls.length > 0) messages.push({ role: "assistant", content: message.content || null, tool_calls: calls });
    else if (message.content !== "") messages.push({ role: "assistant", content: message.content });
  }
  return messages;
}

export function includes(chat: Chat, words: string): boolean {
  const wanted = words.toLowerCase();
  return (
    chat.title.toLowerCase().includes(wanted) ||
    Object.values(chat.messages).some((m) => m.content.toLowerCase().includes(wanted))
  );
}

// --- files ---

const kRoles = ["user", "assistant", "tool"];

function isMessage(id: string, value: any, all: Record<string, any>): boolean {
  const isText = (text: unknown) => text === undefined || typeof text === "string";
  return (
    value?.id === id &&
    kRoles.includes(value.role) &&
    typeof value.content === "string" &&
    (value.parent === null || (typeof value.parent === "string" && Object.hasOwn(all, value.parent))) &&
    [value.reasoning, value.callId, value.voice, value.note, value.error].every(isText) &&
    (value.attachments ?? []).every((a: any) => typeof a?.name === "string" && typeof a?.text === "string") &&
    (value.calls ?? []).every((c: any) => [c?.id, c?.name, c?.arguments].every((text) => typeof text === "string"))
  );
}

// Every message comes to an end at the root.
function hasNoCircle(messages: Record<string, Message>): boolean {
  const good = new Set<string>();
  for (const id of Object.keys(messages)) {
    const path = new Set<string>();
    for (let at: string | null = id; at !== null && !good.has(at); at = messages[at].parent) {
      if (path.has(at)) return false;
      path.add(at);
    }
    path.forEach((seen) => good.add(seen));
  }
  return true;
}

export function isChat(value: any): value is Chat {
  return (
    typeof value?.id === "string" &&
    typeof value.title === "string" &&
    Number.isFinite(value.changed) &&
    typeof value.messages === "object" &&
    value.messages !== null &&
    !Array.isArray(value.messages) &&
    Object.entries(value.messages).every(([id, message]) => isMessage(id, message, value.messages)) &&
    hasNoCircle(value.messages) &&
    (value.leaf === null || (typeof value.leaf === "string" && Object.hasOwn(value.messages, value.leaf))) &&
    isVoice(value.voice) &&
    typeof value.system === "string" &&
    isSampling(value.sampling) &&
    typeof value.tools === "string"
  );
}

export function chatsFile(chats: Chat[]): string {
  return JSON.stringify({ format: "choral-chats", version: 1, chats }, null, 1);
}

export function readChatsFile(text: string): Chat[] {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("the file is not JSON");
  }
  if (file?.format !== "choral-chats" || file.version !== 1 || !Array.isArray(file.chats))
    throw new Error('the file was not exported here: it has no "format": "choral-chats" of version 1');
  file.chats.forEach((chat: unknown, i: number) => {
    if (!isChat(chat)) throw new Error(`chat ${i + 1} of the file is damaged`);
  });
  return file.chats;
}
