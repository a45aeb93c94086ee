// Makes a request's beams, and says what it may ask for besides. A search ranks answers by the model's own probabilities, so
// whatever would change these, or an answer's end by its text, is refused by name. What rules how tokens are drawn (temperature,
// top_p, seed, …) rules nothing here, as with temperature 0: models' files and servers' flags set it for all requests. Any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "choral/types.h"
#include "engine/engine_request.h"

namespace choral::engine {

// `params`: the request's, with values in their ranges. Fine without beam search.
Status check_beams(const Request& request, const SamplingParams& params);
// Without its max_tokens. `stop_ids` may name one twice; `vocab`: tokens that there are at least.
Result<BeamRule> beam_rule_of(const SamplingParams& params, std::vector<int32_t> stop_ids, int32_t vocab);
// How a beam's tokens come: each row tells the likeliest, and nothing is drawn.
SamplingRule beam_sampling(const BeamRule& rule);
// Makes `leader`, which is complete otherwise, beam 0 of the search; its answers' texts are the tokenizer's.
void add_beams(BeamRule rule, std::shared_ptr<const text::Tokenizer> tokenizer, const OutputTextOptions& text,
               EngineRequest& leader);

}  // namespace choral::engine
