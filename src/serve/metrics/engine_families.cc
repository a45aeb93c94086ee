#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "base/printable.h"
#include "serve/metrics/families.h"

namespace choral::serve {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using FamilyLabels = std::vector<ClientMetric::Label>;

constexpr size_t kMaxListBytes = 32 << 10;  // of names in one label
constexpr size_t kMostNamed = 1000;         // adapters with a series that says that they are there

class Families {
 public:
  explicit Families(const std::string& model_name) : constant_{{"engine", "0"}, {"model_name", model_name}} {}

  void gauge(const char* name, const char* help, double value, FamilyLabels labels = {}) {
    add(name, help, MetricType::Gauge, std::move(labels), true).gauge.value = value;
  }
  void counter(const char* name, const char* help, int64_t value, FamilyLabels labels = {}) {
    add(name, help, MetricType::Counter, std::move(labels), true).counter.value = static_cast<double>(value);
  }
  void seconds(const char* name, const char* help, double value) {
    add(name, help, MetricType::Counter, {}, true).counter.value = value;
  }
  template <class Bounds>
  void histogram(const char* name, const char* help, const Counted<Bounds>& counted) {
    auto& histogram = add(name, help, MetricType::Histogram, {}, true).histogram;
    uint64_t count = 0;
    for (size_t i = 0; i < counted.counts.size(); ++i) {
      count += static_cast<uint64_t>(counted.counts[i]);
      const bool has_bound = i < Bounds::kBounds.size();
      histogram.bucket.push_back(
          {count, has_bound ? static_cast<double>(Bounds::kBounds[i]) : std::numeric_limits<double>::infinity()});
    }
    histogram.sample_count = count;
    histogram.sample_sum = static_cast<double>(counted.sum);
  }
  // Of the engine as a whole: without the model's name, as in vLLM.
  void info(const char* name, const char* help, double value, FamilyLabels labels) {
    add(name, help, MetricType::Gauge, std::move(labels), false).gauge.value = value;
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  ClientMetric& add(const char* name, const char* help, MetricType type, FamilyLabels labels, bool constant) {
    if (families_.empty() || families_.back().name != name) families_.push_back({name, help, type, {}});
    if (constant) labels.insert(labels.begin(), constant_.begin(), constant_.end());
    ClientMetric metric;
    metric.label = std::move(labels);
    return families_.back().metric.emplace_back(std::move(metric));
  }

  const FamilyLabels constant_;
  std::vector<MetricFamily> families_;
};

// Names with commas between them; those in use come first where there is no room for all, but the order is by name, so that the
// label is the same as long as the set is. A name with a comma in it would be read as two others: it is left out.
class NameList {
 public:
  void add(const std::string& name, bool in_use) {
    if (name.find(',') != name.npos) return;
    bool& used = names_[terminal_line(name)];
    used |= in_use;
  }
  std::string text() const {
    size_t size = 0;
    std::set<std::string_view> chosen;
    for (const bool in_use : {true, false}) {
      for (const auto& [name, used] : names_) {
        if (used != in_use || size + name.size() + 1 > kMaxListBytes) continue;
        size += name.size() + 1;
        chosen.insert(name);
      }
    }
    return fmt::format("{}", fmt::join(chosen, ","));
  }

 private:
  std::map<std::string, bool> names_;
};

// Adapters in memory, ready to answer, and those that requests wait for or that are on their way.
FamilyLabels adapter_lists(const EngineView& view, int64_t max_lora) {
  NameList ready, waiting;
  for (const auto& adapter : view.adapters) {
    if (adapter.state == AdapterState::kResident) ready.add(adapter.name, adapter.in_use > 0);
    if (adapter.state == AdapterState::kLoading) waiting.add(adapter.name, false);
  }
  for (const auto& name : view.activity.running_adapters) ready.add(name, true);
  for (const auto& name : view.activity.waiting_adapters) waiting.add(name, true);
  return {
      {"max_lora", std::to_string(max_lora)}, {"running_lora_adapters", ready.text()}, {"waiting_lora_adapters", waiting.text()}};
}

// Each adapter that is ready to answer, those in use and pinned before others where there are more than have room.
void add_residency(Families& out, std::span<const AdapterInfo> adapters, int64_t max_lora) {
  std::vector<const AdapterInfo*> ready;
  for (const auto& adapter : adapters) {
    if (adapter.state == AdapterState::kResident) ready.push_back(&adapter);
  }
  const auto count = static_cast<double>(ready.size());
  std::stable_partition(ready.begin(), ready.end(), [](const auto* adapter) { return adapter->in_use > 0 || adapter->pinned; });
  if (ready.size() > kMostNamed) ready.resize(kMostNamed);
  for (const auto* adapter : ready) {
    out.gauge("vllm:lora_adapter_loaded", "1 for each adapter in memory. Level gpu, in vLLM's words: ready to answer.", 1,
              {{"adapter_name", terminal_line(adapter->name)},
               {"level", "gpu"},
               {"pinned", adapter->pinned ? "true" : "false"},
               {"rank", std::to_string(adapter->rank)}});
  }
  out.gauge("vllm:num_gpu_loaded_lora_adapters", "Adapters in memory, ready to answer.", count);
  out.gauge("vllm:num_cpu_loaded_lora_adapters", "Adapters in a slower memory: there is none.", 0);
  out.gauge("vllm:max_gpu_lora_adapters", "The most adapters in memory at a time.", static_cast<double>(max_lora));
}

void add_speculation(Families& out, const SpeculationStats& stats) {
  out.counter("vllm:spec_decode_num_drafts_total", "Steps of answers with guessed tokens.", stats.drafts);
  out.counter("vllm:spec_decode_num_draft_tokens_total", "Tokens that were guessed.", stats.guessed);
  out.counter("vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that were right.", stats.right);
  for (size_t i = 0; i < stats.right_at.size(); ++i)
    out.counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Guessed tokens that were right, by their place.",
                stats.right_at[i], {{"position", std::to_string(i)}});
  out.gauge("choral:traffic_store_bytes", "Memory in which ended answers are kept to guess from.",
            static_cast<double>(stats.traffic_bytes));
  out.counter("choral:draft_model_guessed_tokens_total", "Tokens that the draft model guessed.", stats.draft_guessed);
  out.counter("choral:draft_model_right_tokens_total", "Those of them that were right.", stats.draft_right);
  out.seconds("choral:draft_model_seconds_total", "Time of the draft model's steps.", stats.draft_seconds);
  out.gauge("choral:draft_model_failed", "1: the draft model failed, and guesses no more.", stats.draft_failed ? 1 : 0);
}

double share(int64_t part, int64_t whole) { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0; }

void add_adapters(Families& out, const EngineView& view) {
  for (const auto state : {AdapterState::kOnDisk, AdapterState::kLoading, AdapterState::kResident, AdapterState::kFailed}) {
    const auto count =
        std::count_if(view.adapters.begin(), view.adapters.end(), [state](const auto& a) { return a.state == state; });
    std::string label(adapter_state_name(state));
    std::replace(label.begin(), label.end(), ' ', '_');
    out.gauge("choral:adapters", "Adapters that requests can name, or could if their files were sound, by where they are.",
              static_cast<double>(count), {{"state", std::move(label)}});
  }
  const auto pinned = std::count_if(view.adapters.begin(), view.adapters.end(), [](const auto& a) { return a.pinned; });
  out.gauge("choral:adapters_pinned", "Adapters that stay in memory.", static_cast<double>(pinned));
  const EngineStats& stats = view.stats;
  out.gauge("choral:adapter_memory_bytes", "Memory of adapters, and what is reserved for those that are being loaded.",
            static_cast<double>(stats.adapter_bytes));
  out.gauge("choral:adapter_memory_budget_bytes", "The most that adapters may take.",
            static_cast<double>(stats.adapter_budget_bytes));
  out.counter("choral:adapter_loads_total", "Adapters read from disk and packed.", stats.adapter_loads);
  out.counter("choral:adapter_evictions_total", "Adapters that left memory for others.", stats.adapter_evictions);
}

void add_catalogue(Families& out, const CatalogueFigures& catalogue) {
  out.gauge("choral:catalogue_adapters", "Adapters that the catalogue names.", static_cast<double>(catalogue.adapters));
  out.gauge("choral:catalogue_drift", "Of them, those that are served here with another content than it says.",
            static_cast<double>(catalogue.drifted));
  out.gauge("choral:catalogue_read_time_seconds", "When it was read last, in seconds since 1970.", catalogue.read_unix_s);
  out.counter("choral:catalogue_read_failures_total", "Times it could not be read; what was read before stays then.",
              catalogue.failures);
}

}  // namespace

std::vector<MetricFamily> engine_families(const EngineView& view, const EngineFacts& facts, double unix_s) {
  Families out(facts.model_name);
  const EngineStats& stats = view.stats;
  out.gauge("vllm:num_requests_running", "Answers that are being computed.", stats.running);
  out.gauge("vllm:num_requests_waiting", "Answers that wait for a place.", stats.waiting);
  constexpr const char* kReasons = "vllm:num_requests_waiting_by_reason";
  constexpr const char* kReasonsHelp =
      "Answers that wait, by the reason: capacity, for room; deferred, for an adapter or a prefix that another computes.";
  out.gauge(kReasons, kReasonsHelp, view.activity.waiting - view.activity.deferred, {{"reason", "capacity"}});
  out.gauge(kReasons, kReasonsHelp, view.activity.deferred, {{"reason", "deferred"}});
  out.gauge("choral:waiting_prompt_tokens", "Tokens that waiting answers have to compute first.",
            static_cast<double>(stats.waiting_tokens));
  out.gauge("vllm:kv_cache_usage_perc", "KV blocks in use; 1 is all of them.",
            share(stats.kv_blocks_total - stats.kv_blocks_free, stats.kv_blocks_total));
  out.info("vllm:cache_config_info", "The KV cache.", 1,
           {{"block_size", std::to_string(facts.model.kv_block_tokens)},
            {"cache_dtype", facts.model.kv_cache_dtype},
            {"enable_prefix_caching", facts.prefix_caching ? "True" : "False"},
            {"engine", "0"},
            {"num_gpu_blocks", std::to_string(stats.kv_blocks_total)},
            {"prefix_caching_hash_algo", "sha256"}});
  // A picker asks whether one adapter more has room; without a limit there is always some.
  const int64_t max_lora = facts.max_adapters > 0 ? facts.max_adapters : std::numeric_limits<int32_t>::max();
  out.info(
      "vllm:lora_requests_info",
      "Adapters in memory (running), and those that requests wait for or that are being loaded (waiting). The value is the time "
      "of this figure.",
      unix_s, adapter_lists(view, max_lora));
  add_residency(out, view.adapters, max_lora);
  out.histogram("vllm:lora_adapter_load_seconds", "Reading and packing an adapter, whoever asked for it.",
                stats.adapter_load_seconds);
  out.counter("vllm:generation_tokens_total", "Tokens that were generated.", stats.generated_tokens);
  out.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", stats.prefix_query_tokens);
  out.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", stats.prefix_hit_tokens);
  constexpr const char* kSources = "vllm:prompt_tokens_by_source_total";
  constexpr const char* kSourcesHelp = "Prompt tokens by where they came from.";
  out.counter(kSources, kSourcesHelp, stats.prompt_tokens, {{"source", "local_compute"}});
  out.counter(kSources, kSourcesHelp, stats.prefix_hit_tokens, {{"source", "local_cache_hit"}});
  out.counter("vllm:corrupted_requests_total", "Answers that ended because their logits were no numbers.", stats.corrupted);
  out.histogram("vllm:iteration_tokens_total", "Tokens of a step: those of prompts that it computes, and those that it gives.",
                stats.step_tokens);
  add_speculation(out, stats.speculation);
  out.counter("vllm:num_preemptions_total", "Answers that gave their place back and started again.", stats.preemptions);

  out.counter("choral:engine_steps_total", "Steps of the engine: a figure that stands still while requests run is a fault.",
              stats.steps);
  const EngineHeartbeat& heart = view.heartbeat;
  out.gauge("choral:engine_turn_age_seconds", "Since the engine's loop ended a turn; without work it takes none.",
            heart.turn_age_s);
  out.gauge("choral:engine_step_age_seconds", "Since the step that is being computed began; 0 where none is.",
            heart.step_tokens > 0 ? heart.silent_s : 0);
  out.gauge("choral:engine_step_tokens", "Tokens of that step.", static_cast<double>(heart.step_tokens));
  out.gauge("choral:engine_paused", "1 from POST /pause until POST /resume.", stats.is_paused ? 1 : 0);
  out.gauge("choral:engine_step_limit_seconds", "The most that it should take; /health says 503 beyond.", heart.limit_s);
  out.counter("choral:prompt_tokens_computed_total", "Prompt tokens that were computed rather than found.", stats.prompt_tokens);
  out.counter("choral:host_copies_total", "Copies from a device's memory to the host's: tokens or logits, and what falls back.",
              stats.host_copies);
  out.counter("choral:host_copied_bytes_total", "Bytes of these copies.", stats.host_copied_bytes);
  out.gauge("choral:fallbacks", "What a device took up or gave up since the start; the log has the reasons.",
            static_cast<double>(view.device_notes));
  add_adapters(out, view);
  if (view.catalogue) add_catalogue(out, *view.catalogue);
  return out.take();
}

}  // namespace choral::serve
