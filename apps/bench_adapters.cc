#include "bench_adapters.h"

#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/thread.h"
#include "bench_report.h"
#include "engine_flags.h"
#include "terminal_text.h"
#include "text_table.h"

namespace choral::apps {
namespace {

using tools::StepTimer;

constexpr int kMaxAdapters = 10'000;

int distinct(const StepTimer::Cast& cast, int batch) {
  std::vector<int32_t> ids;
  for (int i = 0; i < batch; ++i) ids.push_back(cast[static_cast<size_t>(i) % cast.size()]);
  std::sort(ids.begin(), ids.end());
  return static_cast<int>(std::unique(ids.begin(), ids.end()) - ids.begin());
}

Status register_adapters(StepTimer& bench, const AdapterBenchFlags& flags, Progress& progress, AdapterReport& report) {
  double seconds = 0;
  for (int i = 0; i < flags.count; ++i) {
    progress.update("making adapters", static_cast<double>(i) / flags.count);
    const int rank = flags.ranks[static_cast<size_t>(i) % flags.ranks.size()];
    CHORAL_TRY(const auto cost, bench.add_adapter(i + 1, rank, static_cast<uint64_t>(i) + 1));
    seconds += cost.pack_s;
    report.packed_bytes += static_cast<double>(cost.packed_bytes) / flags.count;
    report.file_bytes += static_cast<double>(cost.file_bytes) / flags.count;
  }
  report.count = flags.count;
  report.pack_ms = seconds * 1e3 / flags.count;
  return {};
}

void add_cases(const std::string& phase, const std::vector<std::string>& names, std::vector<tools::StepTiming> timings,
               AdapterReport& report) {
  const double base = timings.front().tokens_per_s();
  for (size_t c = 0; c < timings.size(); ++c) {
    report.cases.push_back({phase + ", " + names[c], c == 0, timings[c], timings[c].tokens_per_s() / base});
  }
}

}  // namespace

Status check_adapter_flags(const AdapterBenchFlags& f) {
  if (f.count < 0 || f.count > kMaxAdapters) return invalid_argument("--adapters {}: give 1 to {}", f.count, kMaxAdapters);
  for (const int r : f.ranks) {
    if (r < 1 || r > StepTimer::kMaxAdapterRank)
      return invalid_argument("--ranks {}: give 1 to {}", r, StepTimer::kMaxAdapterRank);
  }
  if (f.ranks.empty()) return invalid_argument("--ranks is empty");
  if (f.skew != "distinct" && f.skew != "zipf" && f.skew != "one") {
    return invalid_argument("--skew {}: choose distinct, zipf or one", f.skew);
  }
  return {};
}

Result<AdapterReport> measure_adapters(StepTimer& bench, const AdapterBenchFlags& flags, const std::vector<int>& batches,
                                       const std::vector<int>& prefills, int context, int steps, Progress& progress) {
  AdapterReport report;
  CHORAL_RETURN_IF_ERROR(register_adapters(bench, flags, progress, report));
  for (const int batch : batches) {
    progress.update(fmt::format("decode, batch {}, with adapters", batch), Progress::kUnknown);
    std::vector<StepTimer::Cast> casts{{0}, {1}};
    std::vector<std::string> names{"base only", "one adapter"};
    if (flags.skew != "one") {
      StepTimer::Cast all;
      for (int i = 1; i <= std::min(flags.count, batch); ++i) all.push_back(i);
      names.push_back(fmt::format("{} distinct", distinct(all, batch)));
      casts.push_back(std::move(all));
    }
    if (flags.skew == "zipf") {
      casts.push_back(StepTimer::zipf_cast(flags.count, batch));
      names.push_back(fmt::format("Zipf over {} ({} distinct)", flags.count, distinct(casts.back(), batch)));
    }
    CHORAL_TRY(auto timings, bench.decode(batch, context, steps, casts));
    add_cases(fmt::format("decode {}", batch), names, std::move(timings), report);
  }
  for (const int tokens : prefills) {
    progress.update(fmt::format("prefill, {} tokens, with an adapter", tokens), Progress::kUnknown);
    const std::vector<StepTimer::Cast> casts{{0}, {1}};
    CHORAL_TRY(auto timings, bench.prefill(tokens, 5, casts));
    add_cases(fmt::format("prefill {}", tokens), {"base only", "one adapter"}, std::move(timings), report);
  }
  return report;
}

std::string adapter_bench_head(const AdapterReport& report, const AdapterBenchFlags& flags) {
  return fmt::format(
      "{} adapters of rank {}, bf16, on every linear layer: {} each in memory ({} in its file), packed in {:.1f} ms each",
      report.count, fmt::join(flags.ranks, ", "), size_text(std::llround(report.packed_bytes)),
      size_text(std::llround(report.file_bytes)), report.pack_ms);
}

TextTable adapter_bench_table(const AdapterReport& report) {
  TextTable table("", 38);
  table.add_column("tokens/s", 10);
  table.add_column("ms/step", 10);
  table.add_column("(best)", 11);
  table.add_column("of base", 10);
  table.add_column("shrink", 9);
  for (const auto& c : report.cases) {
    const auto& t = c.timing;
    table.add_row({c.name, fmt::format("{:.1f}", t.tokens_per_s()), fmt::format("{:.2f}", t.median_s * 1e3),
                   fmt::format("{:.2f}", t.best_s * 1e3), fmt::format("{:.1f} %", 100 * c.of_base),
                   fmt::format("{:.1f} %", 100 * t.shrink_share)});
  }
  return table;
}

std::string adapter_report_text(const AdapterReport& report, const AdapterBenchFlags& flags, int columns) {
  return wrap_hanging("\n" + adapter_bench_head(report, flags) + "\n", columns) + "\n" +
         adapter_bench_table(report).text(columns) + fmt::format("\n{}\n", kAdapterBenchRemark);
}

namespace {

// A folder that goes with its owner.
class ScratchFolder {
 public:
  static Result<ScratchFolder> make() {
    std::error_code error;
    const auto place = std::filesystem::temp_directory_path(error);
    if (error) return unavailable("no folder for temporary files ({}); set TMPDIR to one", error.message());
    std::string name = (place / "choral-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return unavailable("cannot make a folder like {}; set TMPDIR", name);
    ScratchFolder folder;
    folder.path_ = name;
    return folder;
  }
  ScratchFolder(ScratchFolder&& other) noexcept { path_.swap(other.path_); }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  ScratchFolder() = default;
  std::filesystem::path path_;
};

Request short_request(std::string adapter, int tokens) {
  Request request;
  request.prompt = "The quick brown fox jumps over the lazy dog and";
  request.sampling.temperature = 0;
  request.sampling.max_tokens = tokens;
  request.sampling.ignore_eos = true;
  request.most_guessed = 0;  // or steps would be as long as the text is dull
  if (!adapter.empty()) request.adapters.push_back({std::move(adapter), 1.0F});
  return request;
}

// One request that streams on, and the longest time it was left without a token.
class Bystander {
 public:
  static Result<std::unique_ptr<Bystander>> start(LLM& llm, int tokens) {
    CHORAL_TRY(auto stream, llm.submit(short_request("", tokens)));
    auto bystander = std::make_unique<Bystander>(std::move(stream));
    CHORAL_TRY(bystander->thread_, start_thread("the bystander", [self = bystander.get()] { self->run(); }));
    return bystander;
  }
  explicit Bystander(std::unique_ptr<ResponseStream> stream) : stream_(std::move(stream)) {}
  ~Bystander() {
    stream_->cancel();
    if (thread_.joinable()) thread_.join();
  }
  double take_longest_gap_s() { return longest_.exchange(0); }

 private:
  void run() {
    StreamEvent event;
    double last = 0;
    while (stream_->next(event)) {
      const double now = now_s();
      if (last > 0) longest_.store(std::max(longest_.load(), now - last));
      last = now;
    }
  }
  std::unique_ptr<ResponseStream> stream_;
  std::atomic<double> longest_{0};
  std::thread thread_;
};

Result<double> first_token_s(LLM& llm, const std::string& adapter) {
  const auto outputs = llm.generate({short_request(adapter, 1)});
  if (!outputs.front().status.ok()) return outputs.front().status;
  return outputs.front().metrics.first_token_s;
}

}  // namespace

Result<LoadGapReport> measure_load_gap(EngineOptions options, const StepTimer& bench, int loads, Progress& progress) {
  CHORAL_TRY(const auto folder, ScratchFolder::make());
  const auto name_of = [](int i) { return fmt::format("cold-{}", i); };
  for (int i = 0; i < loads; ++i) {
    progress.update("writing adapters", static_cast<double>(i) / loads);
    CHORAL_RETURN_IF_ERROR(bench.write_adapter(folder.path() / name_of(i), 8, static_cast<uint64_t>(i) + 1));
  }
  options.adapter_root = folder.path().string();
  options.enable_prefix_caching = false;
  options.on_progress = {};
  progress.update("loading the engine", Progress::kUnknown);
  CHORAL_TRY(const auto llm, LLM::load(options));

  LoadGapReport report{.loads = loads};
  const auto ask_all = [&](std::vector<double>& first) -> Status {
    for (int i = 0; i < loads; ++i) {
      progress.update("requests for adapters", static_cast<double>(i) / loads);
      CHORAL_TRY(const double s, first_token_s(*llm, name_of(i)));
      first.push_back(s * 1e3);
    }
    return {};
  };
  CHORAL_TRY(const auto bystander, Bystander::start(*llm, 100'000));
  CHORAL_RETURN_IF_ERROR(first_token_s(*llm, "").status());  // the engine is warm
  bystander->take_longest_gap_s();
  std::vector<double> cold, hot;
  CHORAL_RETURN_IF_ERROR(ask_all(cold));
  report.loading_gap_ms = bystander->take_longest_gap_s() * 1e3;
  CHORAL_RETURN_IF_ERROR(ask_all(hot));
  report.quiet_gap_ms = bystander->take_longest_gap_s() * 1e3;
  report.cold_first_token_ms = median(std::move(cold));
  report.hot_first_token_ms = median(std::move(hot));
  return report;
}

std::string load_gap_text(const LoadGapReport& r) {
  return fmt::format(
      "\n{} cold adapters (rank 8, files in the page cache), one after the other, beside a request that streams on:\n"
      "  first token      {:>8.1f} ms cold, {:.1f} ms when in memory: {:+.1f} ms\n"
      "  bystander's gap  {:>8.1f} ms at most while they load, {:.1f} ms when all are in memory: {:+.1f} ms\n",
      r.loads, r.cold_first_token_ms, r.hot_first_token_ms, r.cold_first_token_ms - r.hot_first_token_ms, r.loading_gap_ms,
      r.quiet_gap_ms, r.loading_gap_ms - r.quiet_gap_ms);
}

}  // namespace choral::apps
