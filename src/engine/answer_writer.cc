#include "engine/answer_writer.h"

#include <algorithm>
#include <utility>

namespace choral::engine {
namespace {

PositionLogprobs position_logprobs(const StepOutput& output, const SampledToken& sampled) {
  PositionLogprobs out;
  out.chosen = {sampled.token, sampled.logprob};
  const auto top = output.top_of(sampled);
  out.top.reserve(top.size());
  for (const auto& entry : top) out.top.push_back({entry.token, entry.logprob});
  return out;
}

}  // namespace

AnswerWriter::AnswerWriter(sched::Scheduler& scheduler, Clock clock, int max_tokens)
    : scheduler_(scheduler), clock_(std::move(clock)) {
  accepted_.reserve(max_tokens);
}

void AnswerWriter::commit(EngineRequest& request, const StepOutput& output, std::span<SampledToken> sampled, double now) {
  accepted_.clear();
  Ending ending;
  for (auto& token : sampled) {
    if (token.status.code() == Code::kInternal) ++corrupted_;
    if (token.status.ok() && request.grammar != nullptr) token.status = request.grammar->accept(token.token);
    if (!token.status.ok()) {
      request.response->fail(request.index, std::move(token.status));
      ending = {sched::FinishReason::kError};
    } else {
      if (request.first_token_s == 0) request.first_token_s = now;
      accepted_.push_back(token.token);
      ending = keep_token(request, output, token);
    }
    if (ending.reason != sched::FinishReason::kNone) break;
  }
  scheduler_.commit(request, accepted_);
  generated_tokens_ += std::ssize(accepted_);
  if (ending.reason != sched::FinishReason::kNone) finish(request, ending.reason, std::move(ending.stop_reason));
}

// The last of accepted_.
AnswerWriter::Ending AnswerWriter::keep_token(EngineRequest& request, const StepOutput& output, const SampledToken& sampled) {
  const auto accepted = static_cast<int32_t>(accepted_.size());
  const auto& stops = request.stop_ids;
  const bool is_stop_id = std::find(stops.begin(), stops.end(), sampled.token) != stops.end();
  const bool looks_for_stops = request.output_count() + accepted >= request.params.min_tokens;
  bool stopped = is_stop_id && looks_for_stops;
  std::string stop_reason;
  if (!stopped || request.params.include_stop_str_in_output) {
    if (request.text.push(sampled.token, looks_for_stops)) {
      stopped = true;
      stop_reason = request.text.matched_stop();
    }
  }
  if (request.params.logprobs) request.response->add_logprobs(request.index, position_logprobs(output, sampled));
  request.response->add_token(request.index, sampled.token, sampled.logprob, request.text.take_released());
  if (stopped && stop_reason.empty()) {
    const auto& own = request.params.stop_token_ids;
    if (std::find(own.begin(), own.end(), sampled.token) != own.end()) stop_reason = std::to_string(sampled.token);
  }
  if (stopped) return {sched::FinishReason::kStop, std::move(stop_reason)};
  if (request.grammar != nullptr && request.grammar->finished()) return {sched::FinishReason::kStop};
  if (request.token_count() + accepted >= request.max_length) return {sched::FinishReason::kLength};
  return {};
}

void AnswerWriter::embed(EngineRequest& request, std::span<const float> embedding) {
  auto unit = normalized(embedding);
  if (!unit.ok()) return fail(request, std::move(unit).status());
  request.response->set_embedding(std::move(*unit));
  finish(request, sched::FinishReason::kStop);
}

void AnswerWriter::finish(EngineRequest& request, sched::FinishReason reason, std::string stop_reason) {
  // The last held-back text may complete a stop string.
  if (!request.text.stopped() && request.text.finish() && reason == sched::FinishReason::kLength) {
    reason = sched::FinishReason::kStop;
    stop_reason = request.text.matched_stop();
  }
  request.response->add_text(request.index, request.text.take_released());
  const double now = clock_();
  const RequestMetrics metrics{
      .queue_s = request.scheduled_s > 0 ? request.scheduled_s - request.submitted_s : now - request.submitted_s,
      .first_token_s = request.first_token_s > 0 ? request.first_token_s - request.submitted_s : 0,
      .total_s = now - request.submitted_s,
      .preemptions = request.preemption_count};
  request.response->finish(request.index, reason, std::move(stop_reason), metrics);
  scheduler_.finish(request, reason);
}

void AnswerWriter::fail(EngineRequest& request, Status status) {
  request.response->fail(request.index, std::move(status));
  scheduler_.finish(request, sched::FinishReason::kError);
}

}  // namespace choral::engine
