#include "engine/answer_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/spare_memory.h"

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

AnswerWriter::AnswerWriter(sched::Scheduler& scheduler, Clock clock, int max_num_seqs)
    : scheduler_(scheduler), clock_(std::move(clock)) {
  accepted_.reserve(kMostLogitsRows);
  news_.reserve(static_cast<size_t>(max_num_seqs) * kMostLogitsRows);
  handed_.reserve(news_.capacity());
}

int32_t AnswerWriter::commit(EngineRequest& request, const StepOutput& output, std::span<SampledToken> sampled, int32_t guessed,
                             double now) {
  accepted_.clear();
  AnswerEnding ending;
  for (auto& token : sampled) {
    // Drawn behind a guess that did not come true: it is no token of this answer.
    if (!accepted_.empty() && guessed > 0 && request.guesses[accepted_.size() - 1] != accepted_.back()) break;
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
    if (!ending.goes_on()) break;
  }
  const int32_t right = scheduler_.commit(request, accepted_, guessed);
  generated_tokens_ += std::ssize(accepted_);
  if (guessed > 0) {
    request.guesser.count(guessed, right);
    request.response->set_guesses(request.index, request.guesser.counts());
  }
  if (!ending.goes_on()) finish(request, std::move(ending));
  return right;
}

// The last of accepted_.
AnswerEnding AnswerWriter::keep_token(EngineRequest& request, const StepOutput& output, const SampledToken& sampled) {
  const int64_t count = request.output_count() + std::ssize(accepted_);
  AnswerEnding ending = ending_by_token(request, sampled.token, count);
  if (ending.goes_on()) ending = ending_behind(request, count);
  // A stop string may end it, and the log-probabilities are the step's, which the next one writes over.
  if (ending.goes_on() && !request.text.has_stops() && !request.params.logprobs) {
    news_.push_back({&request, sampled.token, sampled.logprob});
    return ending;
  }
  if (!ending.goes_on()) write_news_of(request);
  take_text(request, sampled.token, count, ending);
  if (request.params.logprobs) request.response->add_logprobs(request.index, position_logprobs(output, sampled));
  request.response->add_token(request.index, sampled.token, sampled.logprob, request.text.take_released());
  if (ending.goes_on()) news_.push_back({&request});
  return ending;
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

void AnswerWriter::finish(EngineRequest& request, AnswerEnding ending) {
  write_news_of(request);
  end_text(request, ending);
  request.response->add_text(request.index, request.text.take_released());
  const double now = clock_();
  const RequestMetrics metrics{
      .queue_s = request.scheduled_s > 0 ? request.scheduled_s - request.submitted_s : now - request.submitted_s,
      .first_token_s = request.first_token_s > 0 ? request.first_token_s - request.submitted_s : 0,
      .total_s = now - request.submitted_s,
      .preemptions = request.preemption_count};
  const bool by_token = ending.by_token();
  request.response->finish(request.index, ending.reason, std::move(ending.stop_reason), metrics, by_token);
  end(request, ending.reason);
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
