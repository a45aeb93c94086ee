#include "engine/answer_ending.h"

#include <algorithm>
#include <span>

namespace choral::engine {
namespace {

bool is_among(std::span<const int32_t> ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

AnswerEnding ending_by_token(const EngineRequest& request, int32_t token, int64_t count) {
  if (!may_stop(request, count) || !is_among(request.stop_ids, token)) return {};
  const bool is_own = is_among(request.params.stop_token_ids, token);
  return {sched::FinishReason::kStop, is_own ? std::to_string(token) : "", true};
}

AnswerEnding ending_behind(const EngineRequest& request, int64_t count) {
  if (request.grammar != nullptr && request.grammar->is_due()) return {};  // AnswerWriter::settle() says
  if (request.grammar != nullptr && request.grammar->finished()) return {sched::FinishReason::kStop};
  if (count >= request.max_tokens) return {sched::FinishReason::kLength};
  return {};
}

void take_text(EngineRequest& request, int32_t token, int64_t count, AnswerEnding& ending) {
  if (ending.is_stop_token && !request.params.include_stop_str_in_output) return;
  if (request.text.push(token, may_stop(request, count))) ending = {sched::FinishReason::kStop, request.text.matched_stop()};
}

void end_text(EngineRequest& request, AnswerEnding& ending) {
  if (request.text.stopped() || !request.text.finish() || ending.reason != sched::FinishReason::kLength) return;
  ending = {sched::FinishReason::kStop, request.text.matched_stop()};
}

}  // namespace choral::engine
