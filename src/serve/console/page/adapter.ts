// What the server says of an adapter, and how a column shows it.
import { bytesText } from "./parts";

export interface Adapter {
  name: string;
  generation: number;
  digest: string | null;
  state: string;
  tier: string;
  kind: string | null;
  rank: number;
  bytes: number;
  pinned: boolean;
  in_use: number;
  loads: number;
  requests: number;
  last_use: number | null;
  errors: number;
  notes: string[];
  error: string | null;
}

export interface AdapterList {
  data: Adapter[];
  resident_bytes: number;
  budget_bytes: number;
  uploads: { held_bytes: number; most_bytes: number } | null; // null: no files are taken
}

interface Column {
  field: keyof Adapter;
  title: string;
  isNumber?: boolean;
  show: (adapter: Adapter) => string;
}

export const kColumns: Column[] = [
  { field: "state", title: "State", show: (a) => a.state },
  { field: "kind", title: "Kind", show: (a) => a.kind ?? "–" },
  { field: "rank", title: "Rank", isNumber: true, show: (a) => (a.rank > 0 ? String(a.rank) : "–") },
  { field: "bytes", title: "Memory", isNumber: true, show: (a) => (a.bytes > 0 ? bytesText(a.bytes) : "–") },
  { field: "generation", title: "Generation", isNumber: true, show: (a) => (a.generation > 0 ? String(a.generation) : "–") },
  { field: "digest", title: "Content", show: (a) => a.digest?.slice(0, 12) ?? "–" },
  { field: "requests", title: "Requests", isNumber: true, show: (a) => String(a.requests) },
  { field: "errors", title: "Errors", isNumber: true, show: (a) => String(a.errors) },
];

export function compareAddress(names: string[]): string {
  return `#compare?${names.map(encodeURIComponent).join(",")}`;
}
