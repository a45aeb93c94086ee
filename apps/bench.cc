// `choral bench`: whole engine steps beside what the machine could give at most, measured before and after them in the same
// process.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/cpu_level.h"
#include "bench_adapters.h"
#include "command.h"
#include "engine/step_timer.h"
#include "engine/synthetic_model.h"
#include "engine_flags.h"
#include "kernels/attention/kv_cache.h"
#include "kernels/roofline.h"
#include "machine_facts.h"
#include "output_file.h"
#include "progress.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxBatch = 256;  // StepTimer's limits
constexpr int kMaxPrefill = 2048;
constexpr int kExtraSteps = 8;  // warm-up and profile

struct BenchFlags {
  EngineFlags engine;
  std::string synthetic;
  std::string format = "bf16";
  std::vector<int> batch{1, 8, 32};
  std::vector<int> prefill{128, 1024};
  int context = 64;
  int steps = 20;
  bool json = false;
  bool quick = false;
  AdapterBenchFlags adapters;
};

struct Row {
  bool is_prefill = false;
  engine::StepTiming timing;
};

struct Report {
  kernels::MachinePeaks before, after;
  std::vector<Row> rows;

  double read_gbps() const { return (before.read_gbps + after.read_gbps) / 2; }
  double gflops() const { return (before.fma_gflops + after.fma_gflops) / 2; }
};

Status check_flags(const BenchFlags& f) {
  for (const int b : f.batch) {
    if (b < 1 || b > kMaxBatch) return invalid_argument("--batch {}: give 1 to {}", b, kMaxBatch);
  }
  for (const int p : f.prefill) {
    if (p < 1 || p > kMaxPrefill) return invalid_argument("--prefill {}: give 1 to {}", p, kMaxPrefill);
  }
  if (f.context < 1 || f.context > 1 << 20) return invalid_argument("--context {}: give 1 to {}", f.context, 1 << 20);
  if (f.steps < 1 || f.steps > 100'000) return invalid_argument("--steps {}: give 1 to 100000", f.steps);
  return check_adapter_flags(f.adapters);
}

// A batch that does not fit into the KV cache would never decode together.
Status check_room(const engine::StepTimer& bench, const BenchFlags& f) {
  const int64_t tokens = int64_t{f.context} + f.steps + kExtraSteps;
  const int64_t longest = std::max<int64_t>(tokens, *std::max_element(f.prefill.begin(), f.prefill.end()) + 1);
  if (longest > bench.worker().max_model_len()) {
    return invalid_argument(
        "sequences of {} tokens do not fit the model's {}: lower --context, --steps or --prefill, or raise --max-model-len",
        longest, bench.worker().max_model_len());
  }
  const int64_t blocks = (tokens + kernels::kKvBlockTokens - 1) / kernels::kKvBlockTokens;
  const int64_t batch = *std::max_element(f.batch.begin(), f.batch.end());
  if (blocks * batch > bench.worker().kv_blocks()) {
    return resource_exhausted(
        "batch {} with {} tokens each needs {} KV blocks, there are {}: lower --batch or raise --kv-cache-memory", batch, tokens,
        blocks * batch, bench.worker().kv_blocks());
  }
  return {};
}

Json peaks_json(const kernels::MachinePeaks& p) {
  return {{"read_gbps", p.read_gbps}, {"fma_gflops", p.fma_gflops}, {"int8_gops", p.int8_gops}, {"tile_gflops", p.tile_gflops}};
}

Json row_json(const Row& row, const Report& report) {
  const auto& t = row.timing;
  return {{"phase", row.is_prefill ? "prefill" : "decode"},
          {"batch", t.batch},
          {"tokens", t.tokens},
          {"steps", t.steps},
          {"median_ms", t.median_s * 1e3},
          {"best_ms", t.best_s * 1e3},
          {"tokens_per_s", t.tokens_per_s()},
          {"weight_gbps", t.weight_gbps()},
          {"of_read_bandwidth", t.weight_gbps() / report.read_gbps()},
          {"gflops", t.gflops()},
          {"of_fma_peak", t.gflops() / report.gflops()},
          {"attention_share", t.attention_share}};
}

Json adapters_json(const AdapterReport& report, const std::optional<LoadGapReport>& gap) {
  Json cases = Json::array();
  for (const auto& c : report.cases) {
    cases.push_back({{"case", c.name},
                     {"median_ms", c.timing.median_s * 1e3},
                     {"best_ms", c.timing.best_s * 1e3},
                     {"tokens_per_s", c.timing.tokens_per_s()},
                     {"of_base", c.of_base},
                     {"shrink_share", c.timing.shrink_share}});
  }
  Json out{{"count", report.count},
           {"pack_ms", report.pack_ms},
           {"packed_bytes", report.packed_bytes},
           {"file_bytes", report.file_bytes},
           {"results", std::move(cases)}};
  if (gap) {
    out["loads"] = {{"count", gap->loads},
                    {"cold_first_token_ms", gap->cold_first_token_ms},
                    {"hot_first_token_ms", gap->hot_first_token_ms},
                    {"loading_gap_ms", gap->loading_gap_ms},
                    {"quiet_gap_ms", gap->quiet_gap_ms}};
  }
  return out;
}

std::string peaks_text(const char* when, const kernels::MachinePeaks& p) {
  return fmt::format("machine {:<6}  read {:.1f} GB/s, fp32 FMA {:.0f} GFLOP/s, int8 {:.0f} GOP/s{}\n", when, p.read_gbps,
                     p.fma_gflops, p.int8_gops,
                     p.tile_gflops > 0 ? fmt::format(", bf16 tiles {:.0f} GFLOP/s", p.tile_gflops) : "");
}

std::string report_text(const Report& report) {
  std::string out = peaks_text("before", report.before) + peaks_text("after", report.after);
  out += "\n              tokens/s   ms/step     (best)  weights GB/s  % of read   GFLOP/s  % of FMA  attention\n";
  for (const Row& row : report.rows) {
    const auto& t = row.timing;
    const std::string name = row.is_prefill ? fmt::format("prefill {}", t.tokens) : fmt::format("decode {}", t.batch);
    out += fmt::format("{:<12}{:>10.1f}{:>10.2f}{:>11.2f}{:>14.1f}{:>10.0f} %{:>10.1f}{:>8.0f} %{:>9.0f} %\n", name,
                       t.tokens_per_s(), t.median_s * 1e3, t.best_s * 1e3, t.weight_gbps(),
                       100 * t.weight_gbps() / report.read_gbps(), t.gflops(), 100 * t.gflops() / report.gflops(),
                       100 * t.attention_share);
  }
  return out +
         "\nMedians. Percentages are of the mean of both machine measurements; % of FMA is of fp32 multiply-adds, which int8 "
         "products can pass.\n";
}

Status measure(engine::StepTimer& bench, const BenchFlags& flags, Progress& progress, Report& report) {
  const size_t total = flags.batch.size() + flags.prefill.size() + 2;
  auto next = [&, done = size_t{0}](const std::string& what) mutable {
    progress.update(what, static_cast<double>(done++) / static_cast<double>(total));
  };
  next("measuring the machine");
  report.before = kernels::measure_peaks(bench.context().kernel);
  for (const int batch : flags.batch) {
    next(fmt::format("decode, batch {}", batch));
    CHORAL_TRY(const auto timing, bench.decode(batch, flags.context, flags.steps));
    report.rows.push_back({false, timing});
  }
  for (const int tokens : flags.prefill) {
    next(fmt::format("prefill, {} tokens", tokens));
    CHORAL_TRY(const auto timing, bench.prefill(tokens, flags.quick ? 1 : 3));
    report.rows.push_back({true, timing});
  }
  next("measuring the machine");
  report.after = kernels::measure_peaks(bench.context().kernel);
  return {};
}

Status run(BenchFlags flags) {
  if (flags.quick) {
    flags.batch = {1, 8};
    flags.prefill = {128};
    flags.steps = 4;
  }
  CHORAL_RETURN_IF_ERROR(check_flags(flags));
  engine::StepTimerOptions options;
  CHORAL_TRY(options.engine, engine_options(flags.engine));
  options.synthetic = flags.synthetic;
  if (options.engine.model.empty() && options.synthetic.empty()) {
    return invalid_argument("name a MODEL, or --synthetic 135m, llama-1b or llama-8b for random weights of that shape");
  }
  if (!options.engine.model.empty() && !options.synthetic.empty()) return invalid_argument("give either a MODEL or --synthetic");
  CHORAL_TRY(options.synthetic_format, parse_dtype(flags.format).while_("--format"));

  Progress progress(flags.engine.quiet);
  progress.update(options.synthetic.empty() ? "loading" : "making random weights", Progress::kUnknown);
  options.engine.on_progress = [&progress](const LoadProgress& p) {
    if (p.phase == "pack") progress.update("packing weights", p.fraction);
  };
  CHORAL_TRY(const auto bench, engine::StepTimer::make(options));
  CHORAL_RETURN_IF_ERROR(check_room(*bench, flags));
  Report report;
  CHORAL_RETURN_IF_ERROR(measure(*bench, flags, progress, report));
  progress.finish();

  std::optional<AdapterReport> adapters;
  std::optional<LoadGapReport> gap;
  if (flags.adapters.count > 0) {
    CHORAL_TRY(adapters,
               measure_adapters(*bench, flags.adapters, flags.batch, flags.prefill, flags.context, flags.steps, progress));
    if (!options.engine.model.empty()) {
      CHORAL_TRY(gap, measure_load_gap(options.engine, bench->lora_manager().targets(), flags.quick ? 10 : 100, progress));
    }
    progress.finish();
  }

  const MachineFacts machine = machine_facts();
  const auto& context = bench->context();
  const auto& loaded = bench->worker().loaded();
  if (flags.engine.verbose) print_notes(bench->worker().notes());
  if (flags.json) {
    Json rows = Json::array();
    for (const Row& row : report.rows) rows.push_back(row_json(row, report));
    const Json all{{"model", bench->name()},
                   {"parameters", loaded.parameters},
                   {"weight_bytes", loaded.weight_bytes},
                   {"load_s", bench->load_s()},
                   {"cpu", machine.cpu_model},
                   {"cpu_level", cpu_level_name(context.kernel.level)},
                   {"threads", context.kernel.pool.size()},
                   {"context", flags.context},
                   {"peaks_before", peaks_json(report.before)},
                   {"peaks_after", peaks_json(report.after)},
                   {"results", std::move(rows)},
                   {"adapters", adapters ? adapters_json(*adapters, gap) : Json()},
                   {"notes", bench->worker().notes()}};
    return print_out(all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  CHORAL_RETURN_IF_ERROR(print_out(fmt::format(
      "{}, {:.0f}M parameters in {}, loaded in {:.1f} s\n{}, level {}, {} threads; decode with {} tokens of context\n",
      bench->name(), static_cast<double>(loaded.parameters) * 1e-6, size_text(static_cast<double>(loaded.weight_bytes)),
      bench->load_s(), machine.cpu_model, cpu_level_name(context.kernel.level), context.kernel.pool.size(), flags.context)));
  CHORAL_RETURN_IF_ERROR(print_out(report_text(report)));
  if (adapters) CHORAL_RETURN_IF_ERROR(print_out(adapter_report_text(*adapters, flags.adapters)));
  if (gap) CHORAL_RETURN_IF_ERROR(print_out(load_gap_text(*gap)));
  return {};
}

}  // namespace

void add_bench(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("bench", "time engine steps, beside what this machine could give at most");
  const auto flags = std::make_shared<BenchFlags>();
  add_model_flag(*sub, flags->engine);
  sub->add_option("--synthetic", flags->synthetic, "random weights instead of MODEL: 135m, llama-1b, llama-8b")
      ->type_name("NAME");
  sub->add_option("--format", flags->format, "of the random weights: bf16, f16, f32, q8_0, q4_0, q4_1, q4_k, …")
      ->type_name("TYPE");
  sub->add_option("--batch", flags->batch, "sequences that decode together (1,8,32)")->delimiter(',')->type_name("LIST");
  sub->add_option("--prefill", flags->prefill, "prompt lengths (128,1024)")->delimiter(',')->type_name("LIST");
  sub->add_option("--context", flags->context, "tokens before the measured ones (64)")->type_name("N");
  sub->add_option("--steps", flags->steps, "measured steps (20)")->type_name("N");
  auto& adapters = flags->adapters;
  sub->add_option("--adapters", adapters.count, "also time batches with N random LoRA adapters beside the base alone")
      ->type_name("N");
  sub->add_option("--ranks", adapters.ranks, "their ranks, in turn (8,16,64)")->delimiter(',')->type_name("LIST");
  sub->add_option("--skew", adapters.skew, "who uses which: distinct, zipf or one (distinct)")->type_name("KIND");
  sub->add_flag("--quick", flags->quick, "a few steps of batch 1 and 8, one prompt");
  sub->add_flag("--json", flags->json, "one JSON object");
  add_engine_flags(*sub, flags->engine);
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
