#include "engine/given_answer.h"

#include <utility>

#include "base/sha256.h"
#include "engine/sampling_check.h"

namespace choral::engine {
namespace {

constexpr size_t kShownDigits = 16;  // of a digest

Status past_end(int index, size_t place, const AnswerEnding& ending) {
  return invalid_argument(
      "continue_token_ids[{}]: the answer ended before token {} of those given ({}), and nothing follows its end; leave out what "
      "stands behind",
      index, place, ending.stop_reason.empty() ? "its end token" : "'" + ending.stop_reason + "'");
}

// The text of a token, and how it ends the answer by itself, as AnswerWriter has it.
AnswerEnding ending_with_text(EngineRequest& completion, int32_t token, int64_t count, bool is_last) {
  AnswerEnding ending = ending_by_token(completion, token, count);
  if (ending.goes_on() && is_last) ending = ending_behind(completion, count);
  take_text(completion, token, count, ending);
  return ending;
}

}  // namespace

Status check_given(const Request& request, const SamplingParams& params, int32_t vocab) {
  if (!request.gives_text())
    return invalid_argument("continue_token_ids: an embedding and classes have no answer that could go on");
  if (completions_made(params) > params.n)
    return invalid_argument(
        "continue_token_ids: an answer of best_of is known at its end only, so none goes on; leave out best_of");
  if (std::ssize(request.given) > params.n) {
    return invalid_argument(
        "continue_token_ids: there are the beginnings of {} answers, and n is {}; give one for each of the n at most",
        request.given.size(), params.n);
  }
  for (size_t i = 0; i < request.given.size(); ++i) {
    if (request.given[i].ended && request.given[i].token_ids.empty())
      return invalid_argument("continue_token_ids[{}] is said to have ended, without a token", i);
    for (const int32_t id : request.given[i].token_ids) {
      if (id < 0 || id >= vocab)
        return invalid_argument("continue_token_ids[{}] holds token {}; the model has ids 0 to {}", i, id, vocab - 1);
    }
  }
  return {};
}

Result<AnswerEnding> take_given(EngineRequest& completion, const GivenAnswer& given) {
  const auto& tokens = given.token_ids;
  const int index = completion.index;
  if (std::ssize(tokens) > completion.max_tokens) {
    return invalid_argument(
        "continue_token_ids[{}] has {} tokens; the whole answer may have {} (max_tokens, or what the model's length leaves)",
        index, tokens.size(), completion.max_tokens);
  }
  AnswerEnding ending;
  if (completion.grammar != nullptr && !tokens.empty())
    CHORAL_RETURN_IF_ERROR(completion.grammar->give(tokens).while_(fmt::format("continue_token_ids[{}]", index)));
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!ending.goes_on()) return past_end(index, i, ending);
    if (completion.thoughts) {
      const int32_t forced = completion.thoughts->forced();
      if (forced != ThoughtBudget::kAny && forced != tokens[i]) {
        return invalid_argument("continue_token_ids[{}]: token {} is {}, where thinking_budget ends the thoughts with token {}",
                                index, i, tokens[i], forced);
      }
      completion.thoughts->accept(tokens[i]);
    }
    ending = ending_with_text(completion, tokens[i], static_cast<int64_t>(i) + 1, i + 1 == tokens.size());
  }
  if (given.ended && ending.goes_on())
    return invalid_argument("continue_token_ids[{}] is said to have ended, and its tokens do not end it", index);
  std::string text(completion.text.take_released());
  if (!ending.goes_on()) end_text(completion, ending);
  if (given.ended) text += completion.text.take_released();
  completion.tokens.insert(completion.tokens.end(), tokens.begin(), tokens.end());
  completion.given_count = static_cast<int32_t>(tokens.size());
  completion.response->give(index, tokens, text);
  if (!ending.goes_on()) {
    completion.response->add_text(index, completion.text.take_released());
    completion.response->finish(index, ending.reason, ending.stop_reason, {}, ending.by_token());
  }
  return ending;
}

Status check_given_prompt(std::string_view begun_with, std::span<const int32_t> prompt) {
  if (begun_with.empty() || to_hex(sha256(std::as_bytes(prompt))).starts_with(begun_with)) return {};
  return invalid_argument(
      "the prompt is another than the one that the answer began with (its tokens differ: other messages, template, tools or "
      "date); send the body that it began with");
}

Status check_given_adapters(const std::optional<std::vector<std::string>>& begun_with, std::span<const AnswerAdapter> adapters) {
  if (!begun_with) return {};
  if (begun_with->size() != adapters.size()) {
    return invalid_argument("the answer began with {} adapters, and {} would go on with it; name those that it began with",
                            begun_with->size(), adapters.size());
  }
  for (size_t i = 0; i < adapters.size(); ++i) {
    const std::string& digest = (*begun_with)[i];
    if (adapters[i].digest.starts_with(digest)) continue;
    return invalid_argument(
        "adapter '{}' is another now: the answer began with content {}…, and here its generation {} is {}…; begin again, or ask "
        "a server where it is what it was",
        adapters[i].name, digest.substr(0, kShownDigits), adapters[i].generation, adapters[i].digest.substr(0, kShownDigits));
  }
  return {};
}

}  // namespace choral::engine
