// One answer of /v1/chat/completions, as it grows; or of /v1/completions, where a prompt was given instead of messages.
import { ApiError, call } from "./api";
import { events } from "./sse";

export interface Alternative {
  token: string;
  logprob: number;
}

export interface Token extends Alternative {
  id: number;
  bytes: number[] | null; // a token may end within a character
  top: Alternative[];
}

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: { cached_tokens?: number };
}

export interface Answer {
  id: string;
  text: string;
  reasoning: string;
  calls: ToolCall[];
  tokens: Token[]; // where log-probabilities were asked for
  finish: string | null;
  usage: Usage | null;
  adapters: { name: string; generation: number; digest: string }[];
  begunAt: number; // milliseconds, as performance.now() counts
  firstAt: number | null;
  endedAt: number | null;
  gaps: number[]; // milliseconds from event to event
  error: string | null;
  isStopped: boolean; // by the reader
}

export function newAnswer(): Answer {
  return {
    id: "",
    text: "",
    reasoning: "",
    calls: [],
    tokens: [],
    finish: null,
    usage: null,
    adapters: [],
    begunAt: performance.now(),
    firstAt: null,
    endedAt: null,
    gaps: [],
    error: null,
    isStopped: false,
  };
}

// Tokens a second behind the first one.
export function speed(answer: Answer): number | null {
  const count = answer.usage?.completion_tokens ?? 0;
  if (count < 2 || answer.firstAt === null || answer.endedAt === null) return null;
  return ((count - 1) * 1000) / Math.max(answer.endedAt - answer.firstAt, 1);
}

function addCalls(answer: Answer, deltas: any[]): void {
  for (const delta of deltas) {
    const call = (answer.calls[delta.index ?? 0] ??= { id: "", name: "", arguments: "" });
    if (delta.id) call.id = delta.id;
    if (delta.function?.name) call.name += delta.function.name;
    if (delta.function?.arguments) call.arguments += delta.function.arguments;
  }
}

function addTokens(answer: Answer, logprobs: any[], ids: number[]): void {
  logprobs.forEach((entry, i) => {
    const top = (entry.top_logprobs ?? []).map(({ token, logprob }: Alternative) => ({ token, logprob }));
    answer.tokens.push({ id: ids[i] ?? -1, token: entry.token, bytes: entry.bytes ?? null, logprob: entry.logprob, top });
  });
}

// The form of completions, made that of chats.
function entriesOf(logprobs: any): any[] {
  if (!logprobs?.tokens) return logprobs?.content ?? [];
  return logprobs.tokens.map((token: string, i: number) => ({
    token,
    logprob: logprobs.token_logprobs[i],
    top_logprobs: Object.entries(logprobs.top_logprobs?.[i] ?? {})
      .map(([text, logprob]) => ({ token: text, logprob: logprob as number }))
      .sort((a, b) => b.logprob - a.logprob),
  }));
}

function addChunk(answer: Answer, chunk: any): void {
  if (chunk.error) throw new ApiError(chunk.error.status ?? 500, chunk.error.message, chunk.error.code ?? "");
  answer.id ||= chunk.id ?? "";
  if (chunk.usage) answer.usage = chunk.usage;
  if (chunk.adapters) answer.adapters = chunk.adapters;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const delta = choice.delta ?? {};
  answer.text += delta.content ?? choice.text ?? "";
  answer.reasoning += delta.reasoning_content ?? delta.reasoning ?? "";
  addCalls(answer, delta.tool_calls ?? []);
  addTokens(answer, entriesOf(choice.logprobs), choice.token_ids ?? []);
  answer.finish = choice.finish_reason ?? answer.finish;
}

function says(chunk: any): boolean {
  const choice = chunk.choices?.[0];
  const delta = choice?.delta;
  return Boolean(
    choice?.text || choice?.logprobs || delta?.content || delta?.reasoning_content || delta?.reasoning || delta?.tool_calls,
  );
}

async function read(answer: Answer, body: object, changed: () => void, signal: AbortSignal): Promise<void> {
  const response = await call("prompt" in body ? "v1/completions" : "v1/chat/completions", {
    body: { ...body, stream: true, stream_options: { include_usage: true } },
    signal,
  });
  let last = 0;
  for await (const data of events(response.body!)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    addChunk(answer, chunk);
    if (!says(chunk)) continue;
    const now = performance.now();
    if (answer.firstAt === null) answer.firstAt = now;
    else answer.gaps.push(now - last);
    last = now;
    changed();
  }
  throw new Error("the stream ended before the answer did");
}

// Asks, and calls `changed` with each piece. What goes wrong stands in the answer, beside what came before.
export async function ask(answer: Answer, body: object, changed: () => void, signal: AbortSignal): Promise<void> {
  try {
    await read(answer, body, changed, signal);
  } catch (failure) {
    if (signal.aborted) answer.isStopped = true;
    else if (failure instanceof ApiError) answer.error = failure.message;
    else answer.error = `The answer broke off: ${failure instanceof Error ? failure.message : failure}`;
  }
  answer.endedAt = performance.now();
  changed();
}
