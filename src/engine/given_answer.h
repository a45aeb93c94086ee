// The beginning of an answer that a request brings: its tokens are told to all that keeps the answer's state (text, stops,
// grammar, thoughts), as if steps had given them, so that what follows is what would have followed. Pure but for the request.
#pragma once

#include <span>
#include <string>

#include "choral/types.h"
#include "engine/answer_ending.h"
#include "engine/engine_request.h"

namespace choral::engine {

// What can be said of the whole request, whose sampling is `params`. `vocab`: its ids are below.
Status check_given(const Request& request, const SamplingParams& params, int32_t vocab);
// Takes them into the completion and its Response. Gives how they end it; one that goes on is for the engine.
// invalid_argument: the answer cannot begin so.
Result<AnswerEnding> take_given(EngineRequest& completion, const GivenAnswer& given);
// `begun_with`: Request::given_prompt and Request::given_adapters.
Status check_given_prompt(std::string_view begun_with, std::span<const int32_t> prompt);
Status check_given_adapters(const std::optional<std::vector<std::string>>& begun_with, std::span<const AnswerAdapter> adapters);

}  // namespace choral::engine
