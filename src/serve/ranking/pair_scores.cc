#include "serve/ranking/pair_scores.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "base/status.h"
#include "serve/pooling/pooled_form.h"

namespace choral::serve {
namespace {

// Qwen3-Reranker's own words.
constexpr std::string_view kJudge =
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can "
    "only be "
    "\"yes\" or \"no\".";
constexpr std::string_view kUsualInstruction = "Given a web search query, retrieve relevant passages that answer the query";

Result<int32_t> only_token(const Vocabulary& vocabulary, std::string_view word) {
  CHORAL_TRY(const auto ids, vocabulary.tokenize(word, /*add_special_tokens=*/false));
  if (ids.size() != 1)
    return unsupported("--score-by yes-no: '{}' is {} tokens to this model, and must be one", word, ids.size());
  return ids.front();
}

Result<PairPrompts> questions(const PairsCall& call, const LLM& llm, const Vocabulary& vocabulary) {
  if (call.request.truncate_prompt_tokens != 0)
    return unsupported("'truncate_prompt_tokens' would cut the question that --score-by yes-no asks; send shorter texts");
  PairPrompts made{.request = call.request, .prompts = {}};
  Request& r = made.request;
  CHORAL_TRY(const int32_t yes, only_token(vocabulary, "yes"));
  CHORAL_TRY(const int32_t no, only_token(vocabulary, "no"));
  r.sampling = {.max_tokens = 1, .temperature = 0, .logprobs = 0, .logprob_token_ids = {yes, no}};
  r.add_special_tokens = false;  // the template writes them
  const std::string_view instruction = call.instruction.empty() ? kUsualInstruction : call.instruction;
  for (size_t i = 0; i < call.pairs(); ++i) {
    Request asked;
    asked.template_kwargs_json = R"({"enable_thinking":false})";
    asked.messages = {
        {.role = "system", .content = std::string(kJudge)},
        {.role = "user",
         .content = fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: {}", instruction, call.left_of(i), call.right_of(i))}};
    CHORAL_TRY(auto prompt, llm.apply_chat_template(asked));
    made.prompts.emplace_back(std::move(prompt));
  }
  return made;
}

// Tokens of the one behind those of the other, as tokenizers put pairs.
Result<PairPrompts> pairs_of_texts(const PairsCall& call, const Vocabulary& vocabulary) {
  PairPrompts made{.request = call.request, .prompts = {}};
  made.request.classes = true;
  for (size_t i = 0; i < call.pairs(); ++i) {
    CHORAL_TRY(auto ids, vocabulary.tokenize(call.left_of(i), call.request.add_special_tokens));
    CHORAL_TRY(const auto right, vocabulary.tokenize(call.right_of(i), /*add_special_tokens=*/false));
    ids.insert(ids.end(), right.begin(), right.end());
    made.prompts.emplace_back(std::move(ids));
  }
  return made;
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);  // of vectors of length 1
}

double share_of_yes(const RequestOutput& output) {
  const auto& top = output.completions.front().logprobs.front().top;
  return 1 / (1 + std::exp(double{top[1].logprob} - double{top[0].logprob}));
}

}  // namespace

Result<PairPrompts> pair_prompts(const PairsCall& call, ScoreBy by, const LLM& llm, const Vocabulary& vocabulary) {
  if (by == ScoreBy::kYesNo) return questions(call, llm, vocabulary);
  if (!call.instruction.empty())
    return unsupported("'instruction' goes with --score-by yes-no: texts are compared as they are; put it before the text");
  if (by == ScoreBy::kHead) return pairs_of_texts(call, vocabulary);
  PairPrompts made{.request = call.request, .prompts = {}};
  made.request.embedding = true;
  for (const auto* side : {&call.left, &call.right}) made.prompts.insert(made.prompts.end(), side->begin(), side->end());
  return made;
}

std::vector<double> pair_scores(const PairsCall& call, ScoreBy by, const std::vector<RequestOutput>& outputs) {
  std::vector<double> scores;
  for (size_t i = 0; i < call.pairs(); ++i) {
    if (by == ScoreBy::kYesNo) {
      scores.push_back(share_of_yes(outputs[i]));
      continue;
    }
    if (by == ScoreBy::kHead) {
      scores.push_back(double{class_probabilities(outputs[i].classes).front()});
      continue;
    }
    const auto& left = outputs[call.left.size() == 1 ? 0 : i];
    const auto& right = outputs[call.left.size() + (call.right.size() == 1 ? 0 : i)];
    scores.push_back(cosine(left.embedding, right.embedding));
  }
  return scores;
}

}  // namespace choral::serve
