// What a token does to the answer that it continues: whether it ends it, and its text. The same for a token that a step gave and
// for one that the request brought.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine_request.h"

namespace choral::engine {

// How a token ends the answer; kNone: not.
struct AnswerEnding {
  sched::FinishReason reason = sched::FinishReason::kNone;
  std::string stop_reason = {};
  bool is_stop_token = false;  // its text is not the answer's, unless asked for

  bool goes_on() const { return reason == sched::FinishReason::kNone; }
  bool by_token() const { return is_stop_token && !stop_reason.empty(); }
};

// Before so many tokens nothing stops it. `count`: of the answer's tokens with the one that is looked at, as everywhere here.
inline bool may_stop(const EngineRequest& request, int64_t count) { return count >= request.params.min_tokens; }
// By the token itself.
AnswerEnding ending_by_token(const EngineRequest& request, int32_t token, int64_t count);
// By the grammar, as far as it is known, and the length.
AnswerEnding ending_behind(const EngineRequest& request, int64_t count);
// Takes the token's text; a stop string in it is how it ends then.
void take_text(EngineRequest& request, int32_t token, int64_t count, AnswerEnding& ending);
// Nothing follows: what was held back is text too, and may complete a stop string.
void end_text(EngineRequest& request, AnswerEnding& ending);

}  // namespace choral::engine
