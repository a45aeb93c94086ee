// The series that requests fill, with vLLM's names and buckets; and the state of one request while it runs, which fills them.
// Thread-safe but for RequestMeter::State, which one thread at a time uses.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <memory>
#include <vector>

#include "serve/metrics/adapter_series.h"
#include "serve/metrics/metrics.h"

namespace choral::serve {

// 1, 2, 5, 10, 20, 50, … up to `most`.
std::vector<double> one_two_five(int64_t most);

struct RequestSeries {
  RequestSeries(prometheus::Registry& registry, const prometheus::Labels& constant, int64_t max_model_len);

  prometheus::Counter &prompt_tokens, &prompt_tokens_cached;
  std::array<prometheus::Counter*, kFinishReasons.size()> success;
  prometheus::Histogram &first_token_s, &inter_token_s, &time_per_token_s;
  prometheus::Histogram &e2e_s, &queue_s, &inference_s, &prefill_s, &decode_s;
  prometheus::Histogram &prompt_length, &prompt_computed, &generation_length, &longest_generation, &n, &max_tokens, &preemptions;
};

struct RequestMeter::State {
  struct Answer {
    int64_t tokens = 0;
    double first_s = 0, last_s = 0, end_s = 0;
    FinishReason reason = FinishReason::kNone;
  };
  RequestSeries& series;
  std::shared_ptr<AdapterSeries> adapter;
  double arrival_s = 0;
  int64_t max_tokens = 0;  // 0: as many as fit
  std::vector<Answer> answers;

  void observe(const Answer& answer, double queue_s);
  void observe_all(const RequestTotals& totals);
};

}  // namespace choral::serve
