// Where answers part.
import { Answer, Token } from "./answers";

function isSame(a: Token, b: Token): boolean {
  return a.id >= 0 && b.id >= 0 ? a.id === b.id : a.token === b.token;
}

// The first token that is not the other's; null while one is the beginning of the other and both may still grow.
export function firstDifference(answer: Answer, other: Answer): number | null {
  const both = Math.min(answer.tokens.length, other.tokens.length);
  for (let i = 0; i < both; i++) if (!isSame(answer.tokens[i], other.tokens[i])) return i;
  const isOver = answer.endedAt !== null && other.endedAt !== null;
  return isOver && answer.tokens.length !== other.tokens.length ? both : null;
}

export interface Replay {
  isSame: boolean;
  text: string; // what to tell
}

async function digestOf(text: string): Promise<string> {
  if (!globalThis.crypto?.subtle) return ""; // over plain HTTP from another machine
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Whether an answer that was asked for twice is the same to the last byte.
export async function compareReplay(first: Answer, again: Answer): Promise<Replay> {
  if (again.error) return { isSame: false, text: `The replay failed: ${again.error}` };
  if (again.isStopped) return { isSame: false, text: "The replay was stopped" };
  const changed = first.adapters.filter((adapter) => !again.adapters.some((now) => now.digest === adapter.digest));
  const at = firstDifference(first, again);
  if (at === null && first.text === again.text) {
    const digest = await digestOf(again.text);
    const bytes = new TextEncoder().encode(again.text).length;
    return {
      isSame: true,
      text: `The same ${again.tokens.length} tokens, ${bytes} bytes${digest && `, SHA-256 ${digest.slice(0, 16)}…`}`,
    };
  }
  const why = changed.length > 0 ? `: ${changed.map((adapter) => adapter.name).join(", ")} has another content now` : "";
  return { isSame: false, text: `Another answer from token ${(at ?? 0) + 1} on${why}` };
}
