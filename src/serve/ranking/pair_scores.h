// The score of two texts, from what the engine gives of them: of vectors the cosine of their angle; of answers how likely "yes"
// is beside "no", as rerankers that are chat models are trained to say it (Qwen3-Reranker); of a head of one class what it makes
// of both texts, one behind the other. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "choral/llm.h"
#include "serve/ranking/rank_call.h"

namespace choral::serve {

enum class ScoreBy { kVectors, kYesNo, kHead };

// What the engine is given: each text of both sides, or each pair's question; and the request that goes for all of them.
struct PairPrompts {
  Request request;
  std::vector<Prompt> prompts;
};
// unsupported: the model cannot be asked so.
Result<PairPrompts> pair_prompts(const PairsCall& call, ScoreBy by, const LLM& llm, const Vocabulary& vocabulary);

// One a pair. `outputs`: of pair_prompts(), in their order.
std::vector<double> pair_scores(const PairsCall& call, ScoreBy by, const std::vector<RequestOutput>& outputs);

}  // namespace choral::serve
