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
#include "engine/synthetic_adapter.h"
#include "engine/synthetic_random.h"
#include "engine_flags.h"
#include "lora/lora_config.h"

namespace choral::apps {
namespace {

using engine::StepTimer;

constexpr int kMaxAdapters = 10'000;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// `batch` draws from 1 … count: rank k with weight 1/k.
StepTimer::Cast zipf_cast(int count, int batch) {
  std::vector<double> cumulative;
  double total = 0;
  for (int k = 1; k <= count; ++k) cumulative.push_back(total += 1.0 / k);
  engine::SyntheticRandom random(7);
  StepTimer::Cast cast;
  for (int i = 0; i < batch; ++i) {
    const double x = total * static_cast<double>(random.next() >> 11) * 0x1p-53;
    const auto drawn = std::lower_bound(cumulative.begin(), cumulative.end(), x) - cumulative.begin();
    cast.push_back(lora::AdapterKey{1 + static_cast<int32_t>(drawn)});
  }
  return cast;
}

int distinct(const StepTimer::Cast& cast, int batch) {
  StepTimer::Cast keys;
  for (int i = 0; i < batch; ++i) keys.push_back(cast[static_cast<size_t>(i) % cast.size()]);
  std::sort(keys.begin(), keys.end());
  return static_cast<int>(std::unique(keys.begin(), keys.end()) - keys.begin());
}

Status register_adapters(StepTimer& bench, const AdapterBenchFlags& flags, Progress& progress, AdapterReport& report) {
  auto& manager = bench.lora_manager();
  double seconds = 0;
  for (int i = 0; i < flags.count; ++i) {
    progress.update("making adapters", static_cast<double>(i) / flags.count);
    const int rank = flags.ranks[static_cast<size_t>(i) % flags.ranks.size()];
    CHORAL_TRY(const auto model,
               engine::make_synthetic_adapter(manager.targets(), {.rank = rank, .seed = static_cast<uint64_t>(i) + 1}));
    const double begin = now_s();
    CHORAL_TRY(auto packed, lora::PackedAdapter::pack(bench.context(), model, manager.targets(), manager.config()));
    seconds += now_s() - begin;
    report.packed_bytes += static_cast<double>(packed->size_bytes()) / flags.count;
    report.file_bytes += static_cast<double>(model.size_bytes()) / flags.count;
    CHORAL_RETURN_IF_ERROR(manager.add_adapter(lora::AdapterKey{i + 1}, {{std::move(packed), 1.0F}}));
  }
  report.count = flags.count;
  report.pack_ms = seconds * 1e3 / flags.count;
  return {};
}

void add_cases(const std::string& phase, const std::vector<std::string>& names, std::vector<engine::StepTiming> timings,
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
    if (r < 1 || r > lora::LoRAConfig::kLargestRank)
      return invalid_argument("--ranks {}: give 1 to {}", r, lora::LoRAConfig::kLargestRank);
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
    std::vector<StepTimer::Cast> casts{{lora::kBaseKey}, {lora::AdapterKey{1}}};
    std::vector<std::string> names{"base only", "one adapter"};
    if (flags.skew != "one") {
      StepTimer::Cast all;
      for (int i = 1; i <= std::min(flags.count, batch); ++i) all.push_back(lora::AdapterKey{i});
      names.push_back(fmt::format("{} distinct", distinct(all, batch)));
      casts.push_back(std::move(all));
    }
    if (flags.skew == "zipf") {
      casts.push_back(zipf_cast(flags.count, batch));
      names.push_back(fmt::format("Zipf over {} ({} distinct)", flags.count, distinct(casts.back(), batch)));
    }
    CHORAL_TRY(auto timings, bench.decode_casts(batch, context, steps, casts));
    add_cases(fmt::format("decode {}", batch), names, std::move(timings), report);
  }
  for (const int tokens : prefills) {
    progress.update(fmt::format("prefill, {} tokens, with an adapter", tokens), Progress::kUnknown);
    const std::vector<StepTimer::Cast> casts{{lora::kBaseKey}, {lora::AdapterKey{1}}};
    CHORAL_TRY(auto timings, bench.prefill_casts(tokens, 5, casts));
    add_cases(fmt::format("prefill {}", tokens), {"base only", "one adapter"}, std::move(timings), report);
  }
  return report;
}

std::string adapter_report_text(const AdapterReport& report, const AdapterBenchFlags& flags) {
  std::string out = fmt::format(
      "\n{} adapters of rank {}, bf16, on every linear layer: {} each in memory ({} in its file), packed in {:.1f} ms each\n",
      report.count, fmt::join(flags.ranks, ", "), size_text(report.packed_bytes), size_text(report.file_bytes), report.pack_ms);
  out += "\n                                        tokens/s   ms/step     (best)   of base   shrink\n";
  for (const auto& c : report.cases) {
    const auto& t = c.timing;
    out += fmt::format("{:<38}{:>10.1f}{:>10.2f}{:>11.2f}{:>8.1f} %{:>7.1f} %\n", c.name, t.tokens_per_s(), t.median_s * 1e3,
                       t.best_s * 1e3, 100 * c.of_base, 100 * t.shrink_share);
  }
  return out + "\nSteps of base and adapters alternate; the ratio is of medians.\n";
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

Result<LoadGapReport> measure_load_gap(EngineOptions options, std::span<const lora::LoRATarget> targets, int loads,
                                       Progress& progress) {
  CHORAL_TRY(const auto folder, ScratchFolder::make());
  const auto name_of = [](int i) { return fmt::format("cold-{}", i); };
  for (int i = 0; i < loads; ++i) {
    progress.update("writing adapters", static_cast<double>(i) / loads);
    CHORAL_TRY(
        [[maybe_unused]] const auto bytes,
        engine::write_synthetic_adapter(folder.path() / name_of(i), targets, {.rank = 8, .seed = static_cast<uint64_t>(i) + 1}));
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
