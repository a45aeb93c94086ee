// Counters for each adapter, in bounded number: adapters are many and come and go, and every series costs the Prometheus server
// memory. The first adapters that are used get series of their own and keep them; later ones share "other", so that sums stay
// true. An adapter that was unloaded gives its place back. A series is never moved from one adapter to another while it lives:
// a counter that goes down or changes its meaning breaks every rate() over it. "base" and "mixed" (several adapters in one
// request) stand beside these.
// Thread-safe.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "choral/llm.h"

namespace choral::serve {

inline constexpr std::array kFinishReasons{FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled,
                                           FinishReason::kError};
// vLLM's word for it: "abort" where the client gave up.
std::string_view finished_reason_label(FinishReason reason);
size_t finish_index(FinishReason reason);  // in kFinishReasons; kNone counts as an error

class AdapterSeriesTable;

// The series of one label value; they live as long as this does.
class AdapterSeries {
 public:
  AdapterSeries(AdapterSeriesTable& table, const std::string& label);
  ~AdapterSeries();
  AdapterSeries(const AdapterSeries&) = delete;
  AdapterSeries& operator=(const AdapterSeries&) = delete;

  prometheus::Counter& finished(FinishReason reason) { return *finished_[finish_index(reason)]; }
  prometheus::Counter& prompt_tokens() { return *prompt_tokens_; }
  prometheus::Counter& generation_tokens() { return *generation_tokens_; }
  prometheus::Counter& guessed_tokens() { return *guessed_tokens_; }
  prometheus::Counter& right_guesses() { return *right_guesses_; }
  prometheus::Histogram& first_token() { return *first_token_; }

 private:
  AdapterSeriesTable& table_;
  std::array<prometheus::Counter*, kFinishReasons.size()> finished_;
  prometheus::Counter* prompt_tokens_;
  prometheus::Counter* generation_tokens_;
  prometheus::Counter* guessed_tokens_;
  prometheus::Counter* right_guesses_;
  prometheus::Histogram* first_token_;
};

class AdapterSeriesTable {
 public:
  // `registry` outlives this, and this outlives every series.
  AdapterSeriesTable(prometheus::Registry& registry, const prometheus::Labels& constant, size_t max_adapters);

  std::shared_ptr<AdapterSeries> find(std::span<const AdapterUse> adapters);
  // Of the adapters that there are: bytes by the labels of their series. Adapters that were missing here and at the call before,
  // and that no request has, give their places back.
  std::map<std::string, int64_t> bytes_by_label(std::span<const AdapterInfo> adapters);

 private:
  friend class AdapterSeries;
  struct Entry {
    std::shared_ptr<AdapterSeries> series;
    bool missing = false;
  };
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& prompt_tokens_;
  prometheus::Family<prometheus::Counter>& generation_tokens_;
  prometheus::Family<prometheus::Counter>& guessed_tokens_;
  prometheus::Family<prometheus::Counter>& right_guesses_;
  prometheus::Family<prometheus::Histogram>& first_token_;
  const size_t max_adapters_;
  std::mutex mutex_;
  std::shared_ptr<AdapterSeries> base_, mixed_, other_;
  std::map<std::string, Entry> own_;  // by label
};

}  // namespace choral::serve
