#include "serve/metrics/adapter_series.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/printable.h"

namespace choral::serve {
namespace {

using prometheus::Labels;

constexpr const char* kBase = "base";    // no adapter is called so
constexpr const char* kMixed = "mixed";  // adapters that are called so, or "other", share "other"
constexpr const char* kOther = "other";

const prometheus::Histogram::BucketBoundaries kFirstTokenBuckets{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 40};

// Label values are UTF-8; names are what a folder is called.
std::string label_of(const std::string& name) { return terminal_line(name); }

bool is_own(const std::string& label) { return label != kBase && label != kMixed && label != kOther; }

}  // namespace

std::string_view finished_reason_label(FinishReason reason) {
  return reason == FinishReason::kCancelled ? "abort" : finish_reason_name(kFinishReasons[finish_index(reason)]);
}

size_t finish_index(FinishReason reason) {
  const auto* found = std::find(kFinishReasons.begin(), kFinishReasons.end(), reason);
  return found != kFinishReasons.end() ? static_cast<size_t>(found - kFinishReasons.begin()) : finish_index(FinishReason::kError);
}

AdapterSeries::AdapterSeries(AdapterSeriesTable& table, const std::string& label)
    : table_(table),
      prompt_tokens_(&table.prompt_tokens_.Add({{"adapter", label}})),
      generation_tokens_(&table.generation_tokens_.Add({{"adapter", label}})),
      guessed_tokens_(&table.guessed_tokens_.Add({{"adapter", label}})),
      right_guesses_(&table.right_guesses_.Add({{"adapter", label}})),
      first_token_(&table.first_token_.Add({{"adapter", label}}, kFirstTokenBuckets)) {
  for (const auto reason : kFinishReasons) {
    const Labels labels{{"adapter", label}, {"finished_reason", std::string(finished_reason_label(reason))}};
    finished_[finish_index(reason)] = &table.requests_.Add(labels);
  }
}

AdapterSeries::~AdapterSeries() {
  for (auto* counter : finished_) table_.requests_.Remove(counter);
  table_.prompt_tokens_.Remove(prompt_tokens_);
  table_.generation_tokens_.Remove(generation_tokens_);
  table_.guessed_tokens_.Remove(guessed_tokens_);
  table_.right_guesses_.Remove(right_guesses_);
  table_.first_token_.Remove(first_token_);
}

AdapterSeriesTable::AdapterSeriesTable(prometheus::Registry& registry, const Labels& constant, size_t max_adapters)
    : requests_(prometheus::BuildCounter()
                    .Name("choral:adapter_requests_total")
                    .Help("Answers that ended, by the adapter that gave them.")
                    .Labels(constant)
                    .Register(registry)),
      prompt_tokens_(prometheus::BuildCounter()
                         .Name("choral:adapter_prompt_tokens_total")
                         .Help("Prompt tokens of requests that ended, by adapter.")
                         .Labels(constant)
                         .Register(registry)),
      generation_tokens_(prometheus::BuildCounter()
                             .Name("choral:adapter_generation_tokens_total")
                             .Help("Tokens given to clients, by adapter.")
                             .Labels(constant)
                             .Register(registry)),
      guessed_tokens_(prometheus::BuildCounter()
                          .Name("choral:adapter_spec_decode_draft_tokens_total")
                          .Help("Tokens that were guessed for answers, by adapter.")
                          .Labels(constant)
                          .Register(registry)),
      right_guesses_(prometheus::BuildCounter()
                         .Name("choral:adapter_spec_decode_accepted_tokens_total")
                         .Help("Guessed tokens that were right, by adapter.")
                         .Labels(constant)
                         .Register(registry)),
      first_token_(prometheus::BuildHistogram()
                       .Name("choral:adapter_time_to_first_token_seconds")
                       .Help("From a request's arrival to its first token, by adapter.")
                       .Labels(constant)
                       .Register(registry)),
      max_adapters_(max_adapters),
      base_(std::make_shared<AdapterSeries>(*this, kBase)),
      mixed_(std::make_shared<AdapterSeries>(*this, kMixed)),
      other_(std::make_shared<AdapterSeries>(*this, kOther)) {}

std::shared_ptr<AdapterSeries> AdapterSeriesTable::find(std::span<const AdapterUse> adapters) {
  if (adapters.empty()) return base_;
  if (adapters.size() > 1) return mixed_;
  std::string label = label_of(adapters.front().name);
  if (!is_own(label)) return label == kBase ? base_ : other_;
  const std::lock_guard lock(mutex_);
  const auto found = own_.find(label);
  if (found != own_.end()) {
    found->second.missing = false;
    return found->second.series;
  }
  if (own_.size() >= max_adapters_) return other_;
  auto series = std::make_shared<AdapterSeries>(*this, label);
  own_.emplace(std::move(label), Entry{series});
  return series;
}

std::map<std::string, int64_t> AdapterSeriesTable::bytes_by_label(std::span<const AdapterInfo> adapters) {
  std::map<std::string, int64_t> bytes{{kOther, 0}};
  const std::lock_guard lock(mutex_);
  std::set<std::string> there;
  for (const auto& adapter : adapters) {
    const std::string label = label_of(adapter.name);
    const int64_t resident = adapter.state == AdapterState::kResident ? adapter.size_bytes : 0;
    const bool own = own_.contains(label);
    bytes[own ? label : kOther] += resident;
    if (own) there.insert(label);
  }
  for (auto it = own_.begin(); it != own_.end();) {
    Entry& entry = it->second;
    const bool was_missing = std::exchange(entry.missing, !there.contains(it->first));
    it = was_missing && entry.missing && entry.series.use_count() == 1 ? own_.erase(it) : std::next(it);
  }
  return bytes;
}

}  // namespace choral::serve
