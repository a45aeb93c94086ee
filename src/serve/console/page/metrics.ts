// Prometheus' text format, as far as /metrics uses it.

export interface Sample {
  labels: Record<string, string>;
  value: number;
}

export type Metrics = Map<string, Sample[]>;

const kLine = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const kLabel = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;

function unescaped(text: string): string {
  return text.replace(/\\(.)/g, (_, c: string) => (c === "n" ? "\n" : c));
}

export function readMetrics(text: string): Metrics {
  const metrics: Metrics = new Map();
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : kLine.exec(line);
    if (!found) continue;
    const labels: Record<string, string> = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(kLabel)) labels[name] = unescaped(value);
    const sample = { labels, value: Number(found[3].replace("Inf", "Infinity")) };
    const samples = metrics.get(found[1]);
    if (samples) samples.push(sample);
    else metrics.set(found[1], [sample]);
  }
  return metrics;
}

// Of all samples of that name, or of those with these labels.
export function sum(metrics: Metrics, name: string, labels: Record<string, string> = {}): number {
  const wanted = Object.entries(labels);
  return (metrics.get(name) ?? [])
    .filter((s) => wanted.every(([label, value]) => s.labels[label] === value))
    .reduce((all, s) => all + s.value, 0);
}

export function byLabel(metrics: Metrics, name: string, label: string): Map<string, number> {
  const sums = new Map<string, number>();
  for (const sample of metrics.get(name) ?? []) {
    const value = sample.labels[label];
    if (value !== undefined) sums.set(value, (sums.get(value) ?? 0) + sample.value);
  }
  return sums;
}
