// A voice is who answers: the base, an adapter, or a mix of adapters with factors.

export interface Part {
  name: string;
  scale: number;
}

export type Voice = Part[]; // none: the base

export const kBase: Voice = [];
export const kMostParts = 8; // that the server lets act together

export function voiceOf(name: string): Voice {
  return name === "" ? kBase : [{ name, scale: 1 }];
}

export function voiceLabel(voice: Voice): string {
  if (voice.length === 0) return "base";
  return voice.map(({ name, scale }) => (scale === 1 ? name : `${name} × ${scale}`)).join(" + ");
}

// The fields of a request that say who answers.
export function voiceFields(voice: Voice): { model: string; lora?: Part[] } {
  if (voice.length === 1 && voice[0].scale === 1) return { model: voice[0].name };
  return voice.length === 0 ? { model: "base" } : { model: "base", lora: voice };
}

export function isVoice(value: unknown): value is Voice {
  return (
    Array.isArray(value) &&
    value.length <= kMostParts &&
    value.every((part) => typeof part?.name === "string" && Number.isFinite(part?.scale))
  );
}
