// How reranking and scores are answered. For .cc files only, as the forms of the other routes. A form serves one request; not
// thread-safe.
#pragma once

#include <memory>

#include "serve/openai/answer_form.h"
#include "serve/ranking/pair_scores.h"

namespace choral::serve {

std::unique_ptr<AnswerForm> make_rerank_form(AnswerHead head, RerankCall call, ScoreBy by);
std::unique_ptr<AnswerForm> make_score_form(AnswerHead head, PairsCall call, ScoreBy by);

}  // namespace choral::serve
