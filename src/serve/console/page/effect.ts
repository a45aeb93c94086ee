// How much an adapter changes each module of its base, by kind of module and layer. Of a pair B·A the server gives the length of
// all that it adds to the weight; a weight that is replaced as a whole has none.
import { json } from "./api";

interface ChangedModule {
  module: string; // "model.layers.0.self_attn.q_proj"
  kind: string;
  rank: number;
  norm: number | null;
}

// One square: experts of a layer are one, as long as all that is added to them.
export interface EffectCell {
  norm: number | null;
  told: string; // "LoRA, rank 8"
}

export interface Effect {
  layers: (number | null)[]; // null: outside the numbered ones
  parts: string[]; // "self_attn.q_proj"
  cells: Map<string, EffectCell>; // by cellKey()
  most: number;
}

// As a layer computes them; others follow by name.
const kOrder = ["q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "gate_proj", "up_proj", "gate_up_proj", "down_proj"];
const kLayer = /\.(\d+)\./;
const kExpert = /\.\d+(?=\.|$)/g;

export function cellKey(part: string, layer: number | null): string {
  return `${layer ?? "-"} ${part}`;
}

function placeOf(module: string): { part: string; layer: number | null } {
  const number = kLayer.exec(module);
  const part = number ? module.slice(number.index + number[0].length) : module;
  return { part: part.replace(kExpert, ".*"), layer: number ? Number(number[1]) : null };
}

function partOrder(a: string, b: string): number {
  const rank = (part: string) => {
    const at = kOrder.indexOf(part.slice(part.lastIndexOf(".") + 1));
    return at < 0 ? kOrder.length : at;
  };
  return rank(a) - rank(b) || a.localeCompare(b);
}

function cellOf(modules: ChangedModule[]): EffectCell {
  const norms = modules.filter((m) => m.norm !== null).map((m) => m.norm!);
  const kinds = [...new Set(modules.map((m) => m.kind))].sort().join(", ");
  if (norms.length === 0) return { norm: null, told: `${kinds}: in place of the base's` };
  const ranks = modules.map((m) => m.rank);
  const [least, most] = [Math.min(...ranks), Math.max(...ranks)];
  const count = modules.length > 1 ? `, ${modules.length} modules` : "";
  return { norm: Math.hypot(...norms), told: `${kinds}, rank ${least === most ? most : `${least}–${most}`}${count}` };
}

export function effectOf(modules: ChangedModule[]): Effect {
  const byCell = new Map<string, ChangedModule[]>();
  const parts = new Set<string>();
  const layers = new Set<number | null>();
  for (const module of modules) {
    const { part, layer } = placeOf(module.module);
    parts.add(part);
    layers.add(layer);
    const key = cellKey(part, layer);
    byCell.set(key, [...(byCell.get(key) ?? []), module]);
  }
  const cells = new Map([...byCell].map(([key, inside]) => [key, cellOf(inside)]));
  return {
    layers: [...layers].sort((a, b) => (a ?? -1) - (b ?? -1)),
    parts: [...parts].sort(partOrder),
    cells,
    most: Math.max(0, ...[...cells.values()].map((cell) => cell.norm ?? 0)),
  };
}

export async function loadEffect(name: string): Promise<Effect> {
  const { modules } = await json<{ modules: ChangedModule[] }>(`v1/lora_adapters/${encodeURIComponent(name)}/effect`);
  return effectOf(modules);
}
