// An adapter's effect as a heat map: a table, so that a screen reader walks through it by module and layer.
import { Component, h } from "preact";
import { cellKey, Effect, EffectCell, loadEffect } from "./effect";
import { CheckBox, IconButton, Notice, reasonOf } from "./parts";

const kSteps = 10; // of heat

// Three digits, as much as a cell has room for.
function normText(norm: number): string {
  return norm >= 100 ? norm.toFixed(0) : norm.toPrecision(2);
}

function layerName(layer: number | null): string {
  return layer === null ? "outside the layers" : `layer ${layer}`;
}

function Cell({ cell, most, place }: { key: string; cell: EffectCell | undefined; most: number; place: string }) {
  if (cell === undefined) return <td class="heat untouched" aria-label="not changed" />;
  if (cell.norm === null) {
    return (
      <td class="heat replaced" title={`${place}: ${cell.told}`}>
        <span>×</span>
      </td>
    );
  }
  const step = most > 0 ? Math.ceil((cell.norm / most) * kSteps) : 0;
  return (
    <td class={`heat heat-${step}`} title={`${place}: ‖B·A‖ ${cell.norm.toPrecision(4)}, ${cell.told}`}>
      <span>{normText(cell.norm)}</span>
    </td>
  );
}

interface MapProps {
  key: string;
  name: string;
  effect: Effect;
  most: number; // of the scale
  hasNumbers: boolean;
}

function EffectMap({ name, effect, most, hasNumbers }: MapProps) {
  const { layers, parts, cells } = effect;
  const every = Math.ceil(layers.length / 32); // column that has its number written
  return (
    <div class="table-frame heat-frame" tabIndex={0} role="region" aria-label={`Effect of ${name} by layer`}>
      <table class={hasNumbers ? "heat-map with-numbers" : "heat-map"}>
        <caption>
          {name}: at most {normText(effect.most)}
        </caption>
        <thead>
          <tr>
            <th scope="col">
              <span class="unseen">Module</span>
            </th>
            {layers.map((layer, i) => (
              <th scope="col" key={String(layer)} aria-label={layerName(layer)}>
                {layer === null ? "–" : i % every === 0 || hasNumbers ? layer : ""}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {parts.map((part) => (
            <tr key={part}>
              <th scope="row">{part}</th>
              {layers.map((layer) => (
                <Cell
                  key={String(layer)}
                  cell={cells.get(cellKey(part, layer))}
                  most={most}
                  place={`${part}, ${layerName(layer)}`}
                />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface Props {
  names: string[];
  onClose: () => void;
}

interface State {
  effects: Record<string, Effect>;
  errors: Record<string, string>;
  hasNumbers: boolean;
}

export class EffectMaps extends Component<Props, State> {
  state: State = { effects: {}, errors: {}, hasNumbers: false };
  private asked = new Set<string>();
  private isGone = false;

  componentDidMount() {
    this.ask();
  }

  componentDidUpdate() {
    this.ask();
  }

  componentWillUnmount() {
    this.isGone = true;
  }

  private ask() {
    for (const name of this.props.names) {
      if (this.asked.has(name)) continue;
      this.asked.add(name);
      this.load(name);
    }
  }

  private async load(name: string) {
    try {
      const effect = await loadEffect(name);
      if (!this.isGone) this.setState((state: State) => ({ effects: { ...state.effects, [name]: effect } }));
    } catch (failure) {
      if (!this.isGone) this.setState((state: State) => ({ errors: { ...state.errors, [name]: reasonOf(failure) } }));
    }
  }

  private renderOne(name: string, most: number, { effects, errors, hasNumbers }: State) {
    if (errors[name]) {
      return (
        <div key={name}>
          <Notice kind="error" text={`${name}: ${errors[name]}`} />
        </div>
      );
    }
    if (!effects[name]) {
      return (
        <p key={name} class="faint" role="status">
          Reading {name} …
        </p>
      );
    }
    if (effects[name].parts.length === 0) {
      return (
        <p key={name} class="faint">
          {name} changes no module.
        </p>
      );
    }
    return <EffectMap key={name} name={name} effect={effects[name]} most={most} hasNumbers={hasNumbers} />;
  }

  render({ names, onClose }: Props, state: State) {
    const most = Math.max(0, ...names.map((name) => state.effects[name]?.most ?? 0));
    return (
      <section class="card stack" aria-label="Effect by layer">
        <header class="row wrap">
          <h2>Effect by layer</h2>
          <span class="legend" aria-hidden="true">
            0{" "}
            {[0, 2, 4, 6, 8, 10].map((step) => (
              <i key={String(step)} class={`heat-${step}`} />
            ))}{" "}
            {normText(most)}
          </span>
          <span class="grow" />
          <CheckBox
            label="Numbers"
            isOn={state.hasNumbers}
            onSwitch={() => this.setState({ hasNumbers: !state.hasNumbers })}
          />
          <IconButton icon="close" label="Close the effects" onClick={onClose} />
        </header>
        <p class="faint">
          ‖B·A‖ with its scale: how long all that the adapter adds to a weight is (Frobenius’ norm).
          {names.length > 1 && " One scale for all, so that they can be compared."}
        </p>
        {names.map((name) => this.renderOne(name, most, state))}
      </section>
    );
  }
}
