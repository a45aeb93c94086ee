// What a request may say of sampling. What is left open is the server's to choose, and is not sent.

export interface Sampling {
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repetition_penalty?: number;
  max_tokens?: number;
  seed?: number;
}

export interface SamplingField {
  name: keyof Sampling;
  label: string;
  min: number;
  max: number;
  step: number;
}

export const kSamplingFields: SamplingField[] = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05 },
  { name: "top_p", label: "Top p", min: 0, max: 1, step: 0.01 },
  { name: "top_k", label: "Top k", min: -1, max: 1000, step: 1 },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01 },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0.5, max: 2, step: 0.01 },
  { name: "max_tokens", label: "Most tokens", min: 1, max: 1000000, step: 1 },
  { name: "seed", label: "Seed", min: 0, max: 4294967295, step: 1 },
];

export function isSampling(value: unknown): value is Sampling {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    Object.entries(value).every(
      ([name, number]) => kSamplingFields.some((field) => field.name === name) && Number.isFinite(number),
    )
  );
}
