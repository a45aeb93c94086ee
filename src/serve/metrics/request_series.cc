#include "serve/metrics/request_series.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"

namespace choral::serve {
namespace {

using prometheus::Counter;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::Registry;
using Buckets = Histogram::BucketBoundaries;

const Buckets kFirstToken{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const Buckets kInterToken{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
const Buckets kLatency{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Buckets kN{1, 2, 5, 10, 20};
const Buckets kPreemptions{1, 2, 3, 4, 5, 10, 20};

Counter& counter(Registry& registry, const Labels& constant, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Labels(constant).Register(registry).Add({});
}

Histogram& histogram(Registry& registry, const Labels& constant, const char* name, const char* help, const Buckets& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Labels(constant).Register(registry).Add({}, buckets);
}

}  // namespace

std::vector<double> one_two_five(int64_t most) {
  std::vector<double> out;
  for (int64_t power = 1; power <= most; power *= 10) {
    for (const int64_t digit : {1, 2, 5}) {
      if (digit * power <= most) out.push_back(static_cast<double>(digit * power));
    }
  }
  return out;
}

RequestSeries::RequestSeries(Registry& registry, const Labels& constant, int64_t max_model_len)
    : prompt_tokens(counter(registry, constant, "vllm:prompt_tokens_total", "Prompt tokens of requests that ended.")),
      prompt_tokens_cached(counter(registry, constant, "vllm:prompt_tokens_cached_total",
                                   "Prompt tokens of requests that ended which the prefix cache served.")),
      first_token_s(histogram(registry, constant, "vllm:time_to_first_token_seconds",
                              "From a request's arrival to the first token of each of its answers.", kFirstToken)),
      inter_token_s(histogram(registry, constant, "vllm:inter_token_latency_seconds", "From one piece of an answer to the next.",
                              kInterToken)),
      time_per_token_s(histogram(registry, constant, "vllm:request_time_per_output_token_seconds",
                                 "Of a whole answer: the mean time of a token after the first.", kInterToken)),
      e2e_s(histogram(registry, constant, "vllm:e2e_request_latency_seconds", "From a request's arrival to its answer's end.",
                      kLatency)),
      queue_s(histogram(registry, constant, "vllm:request_queue_time_seconds", "Waiting for a place in a batch.", kLatency)),
      inference_s(histogram(registry, constant, "vllm:request_inference_time_seconds",
                            "From the place in a batch to the last token.", kLatency)),
      prefill_s(histogram(registry, constant, "vllm:request_prefill_time_seconds",
                          "From the place in a batch to the first token.", kLatency)),
      decode_s(histogram(registry, constant, "vllm:request_decode_time_seconds", "From the first token to the last.", kLatency)),
      prompt_length(histogram(registry, constant, "vllm:request_prompt_tokens", "Prompt tokens of a request.",
                              one_two_five(max_model_len))),
      prompt_computed(histogram(registry, constant, "vllm:request_prefill_kv_computed_tokens",
                                "Prompt tokens of a request that the prefix cache did not serve.", one_two_five(max_model_len))),
      generation_length(
          histogram(registry, constant, "vllm:request_generation_tokens", "Tokens of an answer.", one_two_five(max_model_len))),
      longest_generation(histogram(registry, constant, "vllm:request_max_num_generation_tokens",
                                   "Tokens of the longest answer of a request.", one_two_five(max_model_len))),
      n(histogram(registry, constant, "vllm:request_params_n", "Answers that a request asked for.", kN)),
      max_tokens(histogram(registry, constant, "vllm:request_params_max_tokens", "The limit that a request gave.",
                           one_two_five(max_model_len))),
      preemptions(histogram(registry, constant, "vllm:request_num_preemptions",
                            "Times that a request gave its place back and started again.", kPreemptions)) {
  auto& family = prometheus::BuildCounter()
                     .Name("vllm:request_success_total")
                     .Help("Answers that ended, by the reason; abort: the client left.")
                     .Labels(constant)
                     .Register(registry);
  for (const auto reason : kFinishReasons) {
    success[finish_index(reason)] = &family.Add({{"finished_reason", std::string(finished_reason_label(reason))}});
  }
}

// Times of a whole answer say something only of one that was finished; an aborted one would make the server look fast.
void RequestMeter::State::observe(const Answer& answer, double queue_s) {
  series.success[finish_index(answer.reason)]->Increment();
  adapter->finished(answer.reason).Increment();
  if (answer.reason != FinishReason::kStop && answer.reason != FinishReason::kLength) return;
  const double scheduled_s = arrival_s + queue_s;
  series.e2e_s.Observe(answer.end_s - arrival_s);
  series.queue_s.Observe(queue_s);
  series.generation_length.Observe(static_cast<double>(answer.tokens));
  if (answer.tokens == 0) return;
  const double decode_s = answer.last_s - answer.first_s;
  series.prefill_s.Observe(std::max(0.0, answer.first_s - scheduled_s));
  series.inference_s.Observe(std::max(0.0, answer.last_s - scheduled_s));
  series.decode_s.Observe(decode_s);
  series.time_per_token_s.Observe(answer.tokens > 1 ? decode_s / static_cast<double>(answer.tokens - 1) : 0);
}

void RequestMeter::State::observe_all(const RequestTotals& totals) {
  int64_t longest = 0;
  bool finished = true;
  for (const auto& answer : answers) {
    observe(answer, totals.queue_s);
    longest = std::max(longest, answer.tokens);
    finished &= answer.reason == FinishReason::kStop || answer.reason == FinishReason::kLength;
  }
  series.prompt_tokens.Increment(static_cast<double>(totals.prompt_tokens));
  series.prompt_tokens_cached.Increment(static_cast<double>(totals.cached_tokens));
  adapter->prompt_tokens().Increment(static_cast<double>(totals.prompt_tokens));
  series.n.Observe(static_cast<double>(answers.size()));
  if (max_tokens > 0) series.max_tokens.Observe(static_cast<double>(max_tokens));
  if (!finished) return;
  series.prompt_length.Observe(static_cast<double>(totals.prompt_tokens));
  series.prompt_computed.Observe(static_cast<double>(totals.prompt_tokens - totals.cached_tokens));
  series.longest_generation.Observe(static_cast<double>(longest));
  series.preemptions.Observe(totals.preemptions);
}

RequestMeter::RequestMeter() = default;
RequestMeter::RequestMeter(std::unique_ptr<State> state) : state_(std::move(state)) {}
RequestMeter::RequestMeter(RequestMeter&&) noexcept = default;
RequestMeter& RequestMeter::operator=(RequestMeter&& other) noexcept {
  if (this != &other) {
    end({}, FinishReason::kCancelled, now_s());
    state_ = std::move(other.state_);
  }
  return *this;
}
RequestMeter::~RequestMeter() { end({}, FinishReason::kCancelled, now_s()); }

void RequestMeter::on_tokens(int index, int64_t count, double now) {
  if (state_ == nullptr || count <= 0) return;
  auto& answer = state_->answers.at(index);
  if (answer.tokens == 0) {
    state_->series.first_token_s.Observe(now - state_->arrival_s);
    state_->adapter->first_token().Observe(now - state_->arrival_s);
    answer.first_s = now;
  } else {
    state_->series.inter_token_s.Observe(now - answer.last_s);
  }
  answer.last_s = now;
  answer.tokens += count;
  state_->adapter->generation_tokens().Increment(static_cast<double>(count));
}

void RequestMeter::on_guesses(const GuessCounts& more) {
  if (state_ == nullptr || more.guessed <= 0) return;
  state_->adapter->guessed_tokens().Increment(static_cast<double>(more.guessed));
  state_->adapter->right_guesses().Increment(static_cast<double>(more.right));
}

void RequestMeter::on_finish(int index, FinishReason reason, double now) {
  if (state_ == nullptr || reason == FinishReason::kNone) return;
  auto& answer = state_->answers.at(index);
  answer.reason = reason;
  answer.end_s = now;
}

void RequestMeter::end(const RequestTotals& totals, FinishReason reason, double now) {
  if (state_ == nullptr) return;
  for (auto& answer : state_->answers) {
    if (answer.reason != FinishReason::kNone) continue;
    answer.reason = reason == FinishReason::kNone ? FinishReason::kError : reason;
    answer.end_s = now;
  }
  state_->observe_all(totals);
  state_.reset();
}

}  // namespace choral::serve
