// Two adapters beside each other.
import { h } from "preact";
import { Adapter, compareAddress, kColumns } from "./adapter";

const kCompared: { title: string; show: (adapter: Adapter) => string }[] = [
  ...kColumns.filter(({ field }) => field !== "digest"),
  { title: "Content (SHA-256)", show: (a) => a.digest ?? "–" },
  { title: "Pinned", show: (a) => (a.pinned ? "yes" : "no") },
  { title: "Loads", show: (a) => String(a.loads) },
  { title: "Last use", show: (a) => (a.last_use ? new Date(a.last_use * 1000).toLocaleString() : "–") },
  { title: "Notes", show: (a) => a.notes.join("; ") || "–" },
];

interface Props {
  pair: Adapter[];
  onEffects: () => void;
}

export function AdapterDiff({ pair, onEffects }: Props) {
  return (
    <section class="card" aria-label="Two adapters beside each other">
      <h2>
        {pair[0].name} and {pair[1].name}
      </h2>
      <div class="table-frame beside" tabIndex={0} role="region" aria-label="What differs">
        <table>
          <thead>
            <tr>
              <th scope="col">What</th>
              <th scope="col">{pair[0].name}</th>
              <th scope="col">{pair[1].name}</th>
            </tr>
          </thead>
          <tbody>
            {kCompared.map(({ title, show }) => (
              <tr key={title} class={show(pair[0]) === show(pair[1]) ? "" : "changed"}>
                <th scope="row">{title}</th>
                <td>{show(pair[0])}</td>
                <td>{show(pair[1])}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="row wrap end">
        <button type="button" onClick={onEffects}>
          Effects by layer
        </button>
        <a class="button-like" href={compareAddress(pair.map((a) => a.name))}>
          Compare their answers
        </a>
      </p>
    </section>
  );
}
