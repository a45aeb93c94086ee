// What the engine does now, and what it chose when it started.
import { Component, h } from "preact";
import { json, text as callText } from "./api";
import { BarChart, LineChart } from "./charts";
import { Inspector } from "./inspector";
import { LiveBatch, Running } from "./live_batch";
import type { ViewProps } from "./main";
import { byLabel, Metrics, readMetrics, sum } from "./metrics";
import { bytesText, Notice, reasonOf, secondsText } from "./parts";

interface Engine {
  version: string;
  model: {
    name: string;
    architecture: string;
    parameters: number;
    weight_bytes: number;
    kv_cache_bytes: number;
    kv_cache_tokens: number;
    kv_cache_dtype: string;
    max_model_len: number;
    vocab_size: number;
    threads: number;
    cpu_level: string;
    notes: string[];
  };
  running: Running[];
  waiting: number;
  waiting_adapters: string[];
  device_notes: string[];
}

// One look at the metrics; rates are over the time since the look before.
interface Look {
  generated: number;
  prompt: number;
  running: number;
  waiting: number;
  kv: number;
  hits: number;
  stepTokens: number;
}

interface State {
  engine: Engine | null;
  metrics: Metrics | null;
  looks: Look[];
  error: string | null;
}

const kPollMs = 2000;
const kKept = 60; // looks: two minutes
const kMostBars = 12;

function rate(now: Metrics, before: Metrics, name: string, seconds: number): number {
  return Math.max(0, (sum(now, name) - sum(before, name)) / seconds);
}

function share(now: Metrics, before: Metrics, part: string, whole: string): number {
  const all = sum(now, whole) - sum(before, whole);
  return all > 0 ? (sum(now, part) - sum(before, part)) / all : 0;
}

function look(now: Metrics, before: Metrics, seconds: number): Look {
  return {
    generated: rate(now, before, "vllm:generation_tokens_total", seconds),
    prompt: rate(now, before, "choral:prompt_tokens_computed_total", seconds),
    running: sum(now, "vllm:num_requests_running"),
    waiting: sum(now, "vllm:num_requests_waiting"),
    kv: sum(now, "vllm:kv_cache_usage_perc"),
    hits: share(now, before, "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
    stepTokens: share(now, before, "vllm:iteration_tokens_total_sum", "vllm:iteration_tokens_total_count"),
  };
}

const kCharts: { title: string; field: keyof Look; show: (value: number) => string; most?: number }[] = [
  { title: "Tokens generated a second", field: "generated", show: (v) => v.toFixed(0) },
  { title: "Prompt tokens computed a second", field: "prompt", show: (v) => v.toFixed(0) },
  { title: "Answers in the batch", field: "running", show: (v) => v.toFixed(0) },
  { title: "Answers that wait", field: "waiting", show: (v) => v.toFixed(0) },
  { title: "Tokens a step", field: "stepTokens", show: (v) => v.toFixed(1) },
  { title: "KV cache in use", field: "kv", show: (v) => `${(v * 100).toFixed(1)} %`, most: 1 },
  { title: "Prompt found in the prefix cache", field: "hits", show: (v) => `${(v * 100).toFixed(0)} %`, most: 1 },
];

function bars(metrics: Metrics, name: string) {
  return [...byLabel(metrics, name, "adapter")]
    .map(([adapter, value]) => ({ name: adapter, value }))
    .filter((bar) => bar.value > 0)
    .sort((a, b) => b.value - a.value)
    .slice(0, kMostBars);
}

function meanFirst(metrics: Metrics) {
  const counts = byLabel(metrics, "choral:adapter_time_to_first_token_seconds_count", "adapter");
  return [...byLabel(metrics, "choral:adapter_time_to_first_token_seconds_sum", "adapter")]
    .filter(([adapter]) => (counts.get(adapter) ?? 0) > 0)
    .map(([adapter, value]) => ({ name: adapter, value: value / counts.get(adapter)! }))
    .sort((a, b) => b.value - a.value)
    .slice(0, kMostBars);
}

export class EngineView extends Component<ViewProps, State> {
  state: State = { engine: null, metrics: null, looks: [], error: null };
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isGone = false;
  private lastAt = 0;

  componentDidMount() {
    this.poll();
  }

  componentWillUnmount() {
    this.isGone = true;
    clearTimeout(this.timer);
  }

  private poll = async () => {
    try {
      if (!document.hidden) {
        const [engine, metrics] = await Promise.all([json<Engine>("v1/engine"), callText("metrics")]);
        if (!this.isGone) this.setState({ engine });
        this.take(readMetrics(metrics));
      }
    } catch (failure) {
      if (!this.isGone) this.setState({ error: `The engine's state could not be read: ${reasonOf(failure)}` });
    }
    if (!this.isGone) this.timer = setTimeout(this.poll, kPollMs);
  };

  private take(metrics: Metrics) {
    if (this.isGone) return;
    const now = performance.now();
    const { metrics: before, looks } = this.state;
    const seconds = (now - this.lastAt) / 1000;
    this.lastAt = now;
    this.setState({
      metrics,
      error: null,
      looks: before === null ? looks : [...looks, look(metrics, before, seconds)].slice(-kKept),
    });
  }

  private renderFacts({ version, model }: Engine) {
    const facts: [string, string][] = [
      ["Model", `${model.name} (${model.architecture})`],
      ["Parameters", `${(model.parameters / 1e6).toFixed(0)} million, ${bytesText(model.weight_bytes)}`],
      ["Context", `${model.max_model_len} tokens, vocabulary of ${model.vocab_size}`],
      ["KV cache", `${model.kv_cache_tokens} tokens of ${model.kv_cache_dtype}, ${bytesText(model.kv_cache_bytes)}`],
      ["Threads", `${model.threads}, CPU level ${model.cpu_level}`],
      ["Choral", version],
    ];
    return (
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    );
  }

  private renderChoices({ model, device_notes }: Engine) {
    return (
      <section class="card" aria-label="Choices and fallbacks">
        <h2>What it chose, and what fell back</h2>
        {device_notes.length > 0 && <h3>Since the start</h3>}
        {device_notes.length > 0 && (
          <ul class="problem">
            {device_notes.map((note) => (
              <li key={note}>{note}</li>
            ))}
          </ul>
        )}
        {model.notes.length === 0 ? (
          <p class="faint">Nothing had to be chosen, and nothing fell back.</p>
        ) : (
          <ul>
            {model.notes.map((note) => (
              <li key={note}>{note}</li>
            ))}
          </ul>
        )}
      </section>
    );
  }

  render({ adapters, hasTemplate }: ViewProps, { engine, metrics, looks, error }: State) {
    return (
      <div class="engine-view">
        <h1>Engine</h1>
        {error && <Notice kind="error" text={error} onClose={() => this.setState({ error: null })} />}
        {engine && this.renderFacts(engine)}
        {engine && <LiveBatch running={engine.running} waiting={engine.waiting} waitingFor={engine.waiting_adapters} />}
        <section class="charts" aria-label="The last two minutes">
          {kCharts.map(({ title, field, show, most }) => (
            <LineChart key={field} title={title} values={looks.map((l) => l[field])} show={show} most={most} />
          ))}
        </section>
        {metrics && (
          <section class="charts wide" aria-label="By adapter">
            <BarChart
              title="Answers by adapter"
              bars={bars(metrics, "choral:adapter_requests_total")}
              show={(v) => v.toFixed(0)}
            />
            <BarChart
              title="Tokens generated by adapter"
              bars={bars(metrics, "choral:adapter_generation_tokens_total")}
              show={(v) => v.toFixed(0)}
            />
            <BarChart title="Mean time to the first token" bars={meanFirst(metrics)} show={(v) => secondsText(v * 1000)} />
          </section>
        )}
        {engine && this.renderChoices(engine)}
        <Inspector adapters={adapters} hasTemplate={hasTemplate} />
      </div>
    );
  }
}
