// What a load generator must know of an answer of OpenAI's API, whole or a piece of a stream: whether a token came, whether it is
// the end, what was counted, what went wrong. The rest is not looked at. Bounded by io::JsonLimits. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::tools {

struct AnswerPiece {
  bool has_text = false;  // of an answer, of its reasoning, or of a tool call
  bool finished = false;  // it says why the answer ended
  std::optional<int64_t> prompt_tokens, completion_tokens;
  std::string error;  // the server's words; empty: none
};

// An error: this is no such answer.
Result<AnswerPiece> read_answer(std::string_view json);
// The server's words in the body of a refusal, on one line, cut; the beginning of the body when it is not of the usual form.
std::string refusal_text(std::string_view body);
// The first model of GET /v1/models.
Result<std::string> first_model(std::string_view json);

}  // namespace choral::tools
