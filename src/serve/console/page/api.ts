// The server's API: JSON there and back, with the key where the server wants one. Paths are relative to the page, so that a
// proxy may put the server anywhere.
import { keep, kept } from "./kept";

const session = () => sessionStorage;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code = "",
  ) {
    super(message);
  }
}

// --- the key ---

let key = kept("key", session) ?? kept("key");
let askForKey: ((wasWrong: boolean) => Promise<void>) | null = null;
let asking: Promise<void> | null = null;

// What asks the reader for a key; it ends when there is one, or fails.
export function onKeyWanted(ask: (wasWrong: boolean) => Promise<void>): void {
  askForKey = ask;
}

export function setKey(value: string, inBrowser: boolean): void {
  key = value || null;
  keep("key", key, session);
  keep("key", inBrowser ? key : null);
}

export function hasKey(): boolean {
  return key !== null;
}

function wantKey(wasWrong: boolean): Promise<void> {
  asking ??= askForKey!(wasWrong).finally(() => (asking = null));
  return asking;
}

// --- calls ---

interface Call {
  method?: string; // else POST of what has a body
  body?: unknown; // JSON
  bytes?: Blob;
  signal?: AbortSignal;
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return new ApiError(response.status, error.message, error.code ?? "");
  } catch {
    return new ApiError(response.status, text.slice(0, 300) || `HTTP ${response.status}`);
  }
}

async function send(path: string, { method, body, bytes, signal }: Call): Promise<Response> {
  const headers: Record<string, string> = {};
  if (key !== null) headers["Authorization"] = "Bearer " + key;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (bytes !== undefined) headers["Content-Type"] = "application/octet-stream";
  try {
    return await fetch(new URL(path, document.baseURI), {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers,
      body: bytes ?? (body === undefined ? undefined : JSON.stringify(body)),
      signal,
      credentials: "omit",
      cache: "no-store",
    });
  } catch (failure) {
    if (signal?.aborted) throw failure;
    throw new ApiError(0, "the server does not answer; is it still running?", "unreachable");
  }
}

// The answer of a call that went well. A call without a key, or with a wrong one, is made again when the reader gave another.
export async function call(path: string, what: Call = {}): Promise<Response> {
  for (;;) {
    const used = key;
    const response = await send(path, what);
    if (response.ok) return response;
    const error = await errorOf(response);
    if (response.status !== 401) throw error;
    if (key === used) await wantKey(used !== null);
  }
}

export async function json<T>(path: string, what: Call = {}): Promise<T> {
  return (await call(path, what)).json();
}

export async function text(path: string, what: Call = {}): Promise<string> {
  return (await call(path, what)).text();
}
