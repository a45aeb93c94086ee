// Charts as SVG by hand: a line over time, and bars by name.
import { h } from "preact";

const kWidth = 300,
  kHeight = 72,
  kEdge = 4;

interface LineProps {
  key?: string;
  title: string;
  values: number[]; // the newest last
  show: (value: number) => string;
  most?: number; // of the axis; else the most of the values
}

export function LineChart({ title, values, show, most }: LineProps) {
  const top = Math.max(most ?? 0, ...(most === undefined ? values : []), 1e-9);
  const x = (i: number) => kEdge + (i * (kWidth - 2 * kEdge)) / Math.max(values.length - 1, 1);
  const y = (value: number) => kHeight - kEdge - (Math.min(value, top) / top) * (kHeight - 2 * kEdge);
  const points = values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const now = values.length > 0 ? show(values[values.length - 1]) : "–";
  const peak = values.length > 0 ? show(Math.max(...values)) : "–";
  return (
    <figure class="chart">
      <figcaption>
        <span>{title}</span>
        <strong>{now}</strong>
      </figcaption>
      <svg
        viewBox={`0 0 ${kWidth} ${kHeight}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${now} now, ${peak} at most`}
      >
        <line class="axis" x1="0" x2={String(kWidth)} y1={String(kHeight - kEdge)} y2={String(kHeight - kEdge)} />
        {values.length > 1 && (
          <polygon class="area" points={`${kEdge},${kHeight - kEdge} ${points} ${x(values.length - 1)},${kHeight - kEdge}`} />
        )}
        {values.length > 1 && <polyline class="line" points={points} />}
      </svg>
      <span class="faint">at most {peak}</span>
    </figure>
  );
}

export interface Bar {
  name: string;
  value: number;
}

export function BarChart({ title, bars, show }: { title: string; bars: Bar[]; show: (value: number) => string }) {
  const most = Math.max(...bars.map((bar) => bar.value), 1e-9);
  return (
    <figure class="chart bars">
      <figcaption>
        <span>{title}</span>
      </figcaption>
      {bars.length === 0 && <p class="faint">nothing yet</p>}
      <ul>
        {bars.map(({ name, value }) => (
          <li key={name}>
            <span class="bar-name">{name}</span>
            <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
              <rect class="bar" width={String((value / most) * 100)} height="8" rx="1" />
            </svg>
            <span class="number">{show(value)}</span>
          </li>
        ))}
      </ul>
    </figure>
  );
}
