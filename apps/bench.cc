// `choral bench`: whole engine steps beside what the machine could give at most, measured before and after them in the same
// process.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "answer_layout.h"
#include "base/machine_facts.h"
#include "bench_adapters.h"
#include "bench_page.h"
#include "bench_report.h"
#include "bench_speculation.h"
#include "command.h"
#include "engine_flags.h"
#include "output_file.h"
#include "progress.h"
#include "terminal_text.h"
#include "timed_model.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;

using tools::StepTimer;

const std::vector<StepTimer::Cast> kBaseOnly{{0}};

struct BenchFlags : TimedModelFlags {
  std::vector<int> batch;    // none: the usual ones
  std::vector<int> prefill;  // none: the usual lengths
  int context = 64;
  std::optional<int> steps;
  bool json = false;
  std::string html;
  bool operators = false;
  bool quick = false;
  AdapterBenchFlags adapters;
  std::string speculation;  // a file of prompts; then these are answered, and no steps are timed
  int rounds = 5;
};

Status check_flags(const BenchFlags& f) {
  for (const int b : f.batch) {
    if (b < 1 || b > StepTimer::kMaxBatch) return invalid_argument("--batch {}: give 1 to {}", b, StepTimer::kMaxBatch);
  }
  for (const int p : f.prefill) {
    if (p < 1 || p > StepTimer::kMaxPrefill) return invalid_argument("--prefill {}: give 1 to {}", p, StepTimer::kMaxPrefill);
  }
  if (f.context < 1 || f.context > 1 << 20) return invalid_argument("--context {}: give 1 to {}", f.context, 1 << 20);
  if (f.steps && (*f.steps < 1 || *f.steps > 100'000)) return invalid_argument("--steps {}: give 1 to 100000", *f.steps);
  if (f.rounds < 1 || f.rounds > 1000) return invalid_argument("--rounds {}: give 1 to 1000", f.rounds);
  if (!f.speculation.empty() && (!f.synthetic.empty() || f.adapters.count > 0 || !f.prefill.empty() || f.steps || f.operators))
    return invalid_argument(
        "--speculation answers prompts with MODEL and times no steps; leave --synthetic, --adapters, --prefill, --steps and "
        "--ops out");
  return check_adapter_flags(f.adapters);
}

// As far as the model goes: a prompt of all its positions leaves none for the token that follows.
std::vector<int> usual_prefill(bool quick, int64_t max_model_len) {
  std::vector<int> lengths{128};
  if (!quick) lengths.push_back(1024);
  for (int& tokens : lengths) tokens = static_cast<int>(std::min<int64_t>(tokens, std::max<int64_t>(max_model_len - 1, 1)));
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
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

// All that was found.
struct Measured {
  const tools::TimedModel& model;
  const MachineFacts machine;
  const BenchFlags& flags;
  const BenchReport& steps;
  const std::optional<AdapterReport>& adapters;
  const std::optional<LoadGapReport>& gap;
};

std::string all_json(const Measured& m) {
  Json all{{"model", m.model.name},
           {"parameters", m.model.parameters},
           {"weight_bytes", m.model.weight_bytes},
           {"load_s", m.model.load_s},
           {"cpu", m.machine.cpu_model},
           {"cpu_level", m.model.cpu_level},
           {"threads", m.model.threads},
           {"device", m.model.device.empty() ? Json() : Json(m.model.device)},
           {"context", m.flags.context}};
  add_bench_report(m.steps, all);
  all["adapters"] = m.adapters ? adapters_json(*m.adapters, m.gap) : Json();
  all["notes"] = m.model.notes;
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string machine_words(const Measured& m) {
  return fmt::format("{}{}, level {}, {} threads; decode with {} tokens of context",
                     m.model.device.empty() ? "" : m.model.device + "; ", m.machine.cpu_model, m.model.cpu_level, m.model.threads,
                     m.flags.context);
}

std::string model_words(const Measured& m) {
  return fmt::format("{}, {:.0f}M parameters in {}, loaded in {:.1f} s", m.model.name,
                     static_cast<double>(m.model.parameters) * 1e-6, size_text(m.model.weight_bytes), m.model.load_s);
}

std::string all_text(const Measured& m) {
  const int columns = terminal_columns();
  std::string out = wrap_hanging(fmt::format("{}\n{}\n", model_words(m), machine_words(m)), columns);
  out += bench_report_text(m.steps, m.flags.operators, columns);
  if (m.adapters) out += adapter_report_text(*m.adapters, m.flags.adapters, columns);
  if (m.gap) out += wrap_hanging(load_gap_text(*m.gap), columns);
  return out;
}

HtmlPage all_page(const Measured& m) {
  HtmlPage page("choral bench: " + m.model.name, fmt::format("{}\n{}", model_words(m), machine_words(m)));
  add_bench_report(m.steps, page);
  if (m.adapters) add_adapter_report(*m.adapters, m.flags.adapters, page);
  if (m.gap) page.add_text(load_gap_text(*m.gap));
  page.add_folded("Choices and fallbacks", m.model.notes);
  return page;
}

// Before and after the steps; where there are none the reason is kept.
void measure_peaks(StepTimer& bench, kernels::MachinePeaks& to, BenchReport& report) {
  auto peaks = bench.measure_peaks();
  if (peaks.ok()) {
    to = *peaks;
  } else {
    report.no_peaks = peaks.status().message();
    report.before = report.after = {};
  }
}

Status measure(StepTimer& bench, const BenchFlags& flags, int steps, Progress& progress, BenchReport& report) {
  const size_t total = flags.batch.size() + flags.prefill.size() + 2;
  auto next = [&, done = size_t{0}](const std::string& what) mutable {
    progress.update(what, static_cast<double>(done++) / static_cast<double>(total));
  };
  next("measuring peaks");
  measure_peaks(bench, report.before, report);
  for (const int batch : flags.batch) {
    next(fmt::format("decode, batch {}", batch));
    CHORAL_TRY(const auto timings, bench.decode(batch, flags.context, steps, kBaseOnly));
    report.rows.push_back({false, timings.front()});
  }
  for (const int tokens : flags.prefill) {
    next(fmt::format("prefill, {} tokens", tokens));
    CHORAL_TRY(const auto timings, bench.prefill(tokens, flags.quick ? 1 : 3, kBaseOnly));
    report.rows.push_back({true, timings.front()});
  }
  next("measuring peaks");
  if (report.no_peaks.empty()) measure_peaks(bench, report.after, report);
  return {};
}

Status run_speculation(BenchFlags flags) {
  CHORAL_RETURN_IF_ERROR(check_flags(flags));
  CHORAL_TRY(const auto prompts, read_bench_prompts(flags.speculation).while_("--speculation"));
  CHORAL_TRY(const auto page_file, open_beside_report("--html", flags.html, flags.engine.quiet));
  if (flags.batch.empty()) flags.batch = {1};
  auto& most_seqs = flags.engine.options.max_num_seqs;
  most_seqs = std::max(most_seqs, *std::max_element(flags.batch.begin(), flags.batch.end()));
  CHORAL_TRY(const auto llm, load_llm(flags.engine));
  Progress progress(flags.engine.quiet);
  CHORAL_TRY(const auto report, measure_speculation(*llm, prompts, flags.batch, flags.quick ? 1 : flags.rounds, progress));
  progress.finish();
  const ModelInfo& info = llm->info();
  const std::string machine = fmt::format("{}, level {}, {} threads; {}", machine_facts().cpu_model, info.cpu_level, info.threads,
                                          fmt::format("{} rounds of each", report.rounds));
  if (flags.json) {
    Json all{{"model", info.name},
             {"parameters", info.parameters},
             {"weight_bytes", info.weight_bytes},
             {"cpu", machine_facts().cpu_model},
             {"cpu_level", info.cpu_level},
             {"threads", info.threads}};
    all["speculation"] = speculation_json(report);
    CHORAL_RETURN_IF_ERROR(print_out(all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  } else {
    const int columns = terminal_columns();
    std::string text = wrap_hanging(fmt::format("{}\n{}\n", info.name, machine), columns);
    text += "\n" + speculation_table(report).text(columns) + "\n" +
            wrap_hanging(fmt::format("{}\n", speculation_remark(report)), columns);
    CHORAL_RETURN_IF_ERROR(print_out(text));
  }
  HtmlPage page("choral bench: " + info.name, machine);
  add_speculation_report(report, page);
  page.add_folded("Choices and fallbacks", info.notes);
  return write_html_file(page_file.get(), page);
}

Status run(BenchFlags flags) {
  if (!flags.speculation.empty()) return run_speculation(std::move(flags));
  if (flags.batch.empty()) flags.batch = flags.quick ? std::vector{1, 8} : std::vector{1, 8, 32};
  const int steps = flags.steps.value_or(flags.quick ? 4 : 20);
  CHORAL_RETURN_IF_ERROR(check_flags(flags));
  CHORAL_TRY(const auto options, timed_model(flags));
  CHORAL_TRY(const auto page_file, open_beside_report("--html", flags.html, flags.engine.quiet));
  Progress progress(flags.engine.quiet);
  CHORAL_TRY(const auto bench, load_timed_model(options, progress));
  if (flags.prefill.empty()) flags.prefill = usual_prefill(flags.quick, bench->model().max_model_len);
  CHORAL_RETURN_IF_ERROR(bench->check_room(flags.batch, flags.prefill, flags.context, steps));
  BenchReport report;
  CHORAL_RETURN_IF_ERROR(measure(*bench, flags, steps, progress, report));
  progress.finish();

  std::optional<AdapterReport> adapters;
  std::optional<LoadGapReport> gap;
  if (flags.adapters.count > 0) {
    CHORAL_TRY(adapters, measure_adapters(*bench, flags.adapters, flags.batch, flags.prefill, flags.context, steps, progress));
    if (!options.engine.model.empty()) {
      CHORAL_TRY(gap, measure_load_gap(options.engine, *bench, flags.quick ? 10 : 100, progress));
    }
    progress.finish();
  }

  if (flags.engine.verbose) print_notes(bench->model().notes);
  const Measured measured{bench->model(), machine_facts(), flags, report, adapters, gap};
  CHORAL_RETURN_IF_ERROR(print_out(flags.json ? all_json(measured) : all_text(measured)));
  return write_html_file(page_file.get(), all_page(measured));
}

}  // namespace

void add_bench(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("bench", "time engine steps, beside what this machine could give at most");
  const auto flags = std::make_shared<BenchFlags>();
  add_timed_model_flags(*sub, *flags);
  sub->add_option("--batch", flags->batch, "sequences that decode together (1,8,32)")->delimiter(',')->type_name("LIST");
  sub->add_option("--prefill", flags->prefill, "prompt lengths (128,1024, or what the model has room for)")
      ->delimiter(',')
      ->type_name("LIST");
  sub->add_option("--context", flags->context, "tokens before the measured ones (64)")->type_name("N");
  sub->add_option("--steps", flags->steps, "measured steps (20)")->type_name("N");
  auto& adapters = flags->adapters;
  sub->add_option("--adapters", adapters.count, "also time batches with N random LoRA adapters beside the base alone")
      ->type_name("N");
  sub->add_option("--ranks", adapters.ranks, "their ranks, in turn (8,16,64)")->delimiter(',')->type_name("LIST");
  sub->add_option("--skew", adapters.skew, "who uses which: distinct, zipf or one (distinct)")->type_name("KIND");
  sub->add_option("--speculation", flags->speculation,
                  "answer a file's prompts with guessed tokens and without: a request or a text a line")
      ->type_name("FILE");
  sub->add_option("--rounds", flags->rounds, "runs of each of the two (5)")->type_name("N");
  sub->add_flag("--quick", flags->quick, "a few steps of batch 1 and 8, one prompt");
  sub->add_flag("--ops", flags->operators, "each operator's time too");
  sub->add_flag("--json", flags->json, "one JSON object");
  sub->add_option("--html", flags->html, "also a page of it, one file: with each operator's time")->type_name("FILE");
  add_engine_flags(*sub, flags->engine);
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
