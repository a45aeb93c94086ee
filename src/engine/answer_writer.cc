#include "engine/answer_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/spare_memory.h"

namespace choral::engine {
namespace {

bool contains(std::span<const int32_t> ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

PositionLogprobs position_logprobs(const StepOutput& output, const SampledToken& sampled) {
  PositionLogprobs out;
  out.chosen = {sampled.token, sampled.logprob};
  const auto top = output.top_of(sampled);
  out.top.reserve(top.size());
  for (const auto& entry : top) out.top.push_back({entry.token, entry.logprob});
  return out;
}

}  // namespace

AnswerWriter::AnswerWriter(sched::Scheduler& scheduler, Clock clock, int max_num_seqs)
    : scheduler_(scheduler), clock_(std::move(clock)) {
  accepted_.reserve(max_num_seqs);
  news_.reserve(max_num_seqs);
  handed_.reserve(max_num_seqs);
}

void AnswerWriter::commit(EngineRequest& request, const StepOutput& output, std::span<SampledToken> sampled, double now) {
  accepted_.clear();
  Ending ending;
  for (auto& token : sampled) {
    if (token.status.code() == Code::kInternal) ++corrupted_;
    if (token.status.ok() && request.grammar != nullptr) token.status = request.grammar->accept(token.token);
    if (!token.status.ok()) {
      sched::Scheduler::distrust(request);
      write_news_of(request);
      request.response->fail(request.index, std::move(token.status));
      ending = {sched::FinishReason::kError};
    } else {
      if (request.first_token_s == 0) request.first_token_s = now;
      if (request.thoughts) request.thoughts->accept(token.token);
      accepted_.push_back(token.token);
      ending = keep_token(request, output, token);
    }
    if (ending.reason != sched::FinishReason::kNone) break;
  }
  scheduler_.commit(request, accepted_);
  generated_tokens_ += std::ssize(accepted_);
  if (ending.reason == sched::FinishReason::kNone) return;
  const bool by_token = ending.is_stop_token && !ending.stop_reason.empty();
  finish(request, ending.reason, std::move(ending.stop_reason), by_token);
}

// The last of accepted_.
AnswerWriter::Ending AnswerWriter::keep_token(EngineRequest& request, const StepOutput& output, const SampledToken& sampled) {
  const bool may_stop = request.output_count() + std::ssize(accepted_) >= request.params.min_tokens;
  Ending ending = ending_of(request, sampled.token, may_stop);
  const bool goes_on = ending.reason == sched::FinishReason::kNone;
  // A stop string may end it, and the log-probabilities are the step's, which the next one writes over.
  if (goes_on && !request.text.has_stops() && !request.params.logprobs) {
    news_.push_back({&request, sampled.token, sampled.logprob});
    return ending;
  }
  if (!goes_on) write_news_of(request);
  if (!ending.is_stop_token || request.params.include_stop_str_in_output) {
    if (request.text.push(sampled.token, may_stop)) ending = {sched::FinishReason::kStop, request.text.matched_stop()};
  }
  if (request.params.logprobs) request.response->add_logprobs(request.index, position_logprobs(output, sampled));
  request.response->add_token(request.index, sampled.token, sampled.logprob, request.text.take_released());
  if (ending.reason == sched::FinishReason::kNone) news_.push_back({&request});
  return ending;
}

// Of the last of accepted_, whatever its text.
AnswerWriter::Ending AnswerWriter::ending_of(const EngineRequest& request, int32_t token, bool may_stop) const {
  if (may_stop && contains(request.stop_ids, token)) {
    const bool is_own = contains(request.params.stop_token_ids, token);
    return {sched::FinishReason::kStop, is_own ? std::to_string(token) : "", true};
  }
  if (request.grammar != nullptr && request.grammar->is_due()) return {};  // settle() says
  if (request.grammar != nullptr && request.grammar->finished()) return {sched::FinishReason::kStop};
  if (request.token_count() + std::ssize(accepted_) >= request.max_length) return {sched::FinishReason::kLength};
  return {};
}

void AnswerWriter::settle(EngineRequest& request, Status status) {
  if (!status.ok()) return fail(request, std::move(status));
  if (request.grammar->finished()) return finish(request, sched::FinishReason::kStop);
  if (request.at_length_limit()) finish(request, sched::FinishReason::kLength);
}

void AnswerWriter::write(const News& news) {
  if (news.token == kWritten) return;
  auto& request = *news.request;
  request.text.push(news.token);
  request.response->add_token(request.index, news.token, news.logprob, request.text.take_released());
}

// They are on the list no more, and its readers are told at the request's end.
void AnswerWriter::write_news_of(const EngineRequest& request) {
  for (auto at = news_.begin(); at != news_.end();) {
    if (at->request != &request) {
      ++at;
      continue;
    }
    const News news = *at;
    at = news_.erase(at);  // first: what there is no memory for is not written twice
    write(news);
  }
}

void AnswerWriter::hand_out() {
  handed_.swap(news_);
  for (const News& news : handed_) {
    EngineRequest& request = *news.request;
    if (request.finished()) continue;  // it found no memory just now
    Status written = or_out_of_memory("the answer cannot be kept", [&] {
      write(news);
      return Status();
    });
    if (!written.ok()) fail(request, std::move(written));
    request.response->wake();
  }
  handed_.clear();
}

void AnswerWriter::give_pooled(EngineRequest& request, std::span<const float> values) {
  if (request.pooling == Pooling::kClasses) {
    const bool is_sound = std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
    if (!is_sound) return fail(request, internal_error("the scores of the text's classes hold a NaN or an infinity"));
    request.response->set_classes({values.begin(), values.end()});
  } else {
    const auto cut = static_cast<size_t>(request.embedding_dimensions);
    auto unit = normalized(cut > 0 && cut < values.size() ? values.first(cut) : values);
    if (!unit.ok()) return fail(request, std::move(unit).status());
    request.response->set_embedding(std::move(*unit));
  }
  finish(request, sched::FinishReason::kStop);
}

void AnswerWriter::finish(EngineRequest& request, sched::FinishReason reason, std::string stop_reason, bool by_token) {
  write_news_of(request);
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
  request.response->finish(request.index, reason, std::move(stop_reason), metrics, by_token);
  end(request, reason);
}

// Many records note a request's end, and all of them must.
void AnswerWriter::end(EngineRequest& request, sched::FinishReason reason) {
  const SpareMemory::Use whole(SpareMemory::of_thread());
  scheduler_.finish(request, reason);
}

void AnswerWriter::fail(EngineRequest& request, Status status) {
  const Status written = or_out_of_memory("the answer cannot be kept", [&] {
    write_news_of(request);
    return Status();
  });
  if (!written.ok()) std::erase_if(news_, [&](const News& news) { return news.request == &request; });
  request.response->fail(request.index, std::move(status));
  end(request, sched::FinishReason::kError);
}

}  // namespace choral::engine
