// What is asked, in the form that the model takes: messages, or where it has no chat template the text that it goes on from.

export interface SaidMessage {
  role: string;
  content: string | null;
  [field: string]: unknown;
}

export type Conversation = { messages: SaidMessage[] } | { prompt: string };

export function conversation(messages: SaidMessage[], hasTemplate: boolean): Conversation {
  if (hasTemplate) return { messages };
  return { prompt: messages.map((message) => message.content ?? "").join("\n") };
}

// The log-probabilities of each token and of the likeliest in its place.
export function logprobFields(count: number, hasTemplate: boolean): object {
  return { ...(hasTemplate ? { logprobs: true, top_logprobs: count } : { logprobs: count }), return_token_ids: true };
}
