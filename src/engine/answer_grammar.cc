#include "engine/answer_grammar.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace choral::engine {

AnswerGrammar::AnswerGrammar(std::unique_ptr<text::GrammarMatcher> matcher, int32_t vocab, std::vector<int32_t> end_ids,
                             std::vector<int32_t> banned_ids)
    : matcher_(std::move(matcher)),
      end_ids_(std::move(end_ids)),
      banned_ids_(std::move(banned_ids)),
      mask_((static_cast<size_t>(vocab) + 31) / 32) {
  due_.reserve(1);
  renew_mask();
}

Result<std::unique_ptr<AnswerGrammar>> AnswerGrammar::make(const text::Grammar& grammar, int32_t vocab,
                                                           std::vector<int32_t> end_ids, std::vector<int32_t> banned_ids) {
  CHORAL_TRY(auto matcher, grammar.matcher());
  std::unique_ptr<AnswerGrammar> made(new AnswerGrammar(std::move(matcher), vocab, std::move(end_ids), std::move(banned_ids)));
  if (made->any_allowed()) return made;
  return invalid_argument("no answer of this model's tokens is one that structured_output allows");
}

bool AnswerGrammar::is_end(int32_t token) const { return std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end(); }

void AnswerGrammar::set(int32_t token, bool allowed) {
  const auto word = static_cast<size_t>(token) / 32;
  if (token < 0 || word >= mask_.size()) return;
  const uint32_t bit = 1U << (static_cast<uint32_t>(token) % 32);
  mask_[word] = allowed ? mask_[word] | bit : mask_[word] & ~bit;
}

bool AnswerGrammar::any_allowed() const {
  return std::any_of(mask_.begin(), mask_.end(), [](uint32_t word) { return word != 0; });
}

void AnswerGrammar::renew_mask() {
  matcher_->fill_mask(mask_);
  complete_ = matcher_->complete();
  for (const int32_t id : banned_ids_) set(id, false);
  for (const int32_t id : end_ids_) set(id, false);
  finished_ = complete_ && !any_allowed();
  for (const int32_t id : end_ids_) set(id, complete_);
}

Status AnswerGrammar::accept(int32_t token) {
  CHORAL_CHECK(!is_due(), "a token came before the mask behind the one before it");
  if (is_end(token) && complete_) return {};  // the answer is over
  due_.push_back(token);
  return is_bounded() ? advance() : Status();
}

Status AnswerGrammar::give(std::vector<int32_t> tokens) {
  CHORAL_CHECK(!is_due(), "an answer's given tokens come first");
  due_ = std::move(tokens);
  due_are_given_ = true;
  return is_bounded() ? advance() : Status();
}

Status AnswerGrammar::advance() {
  const bool are_given = std::exchange(due_are_given_, false);
  size_t place = 0;
  for (const int32_t token : due_) {
    // Behind the end nothing may follow, which whoever brings the tokens has seen to.
    const bool is_over = are_given && is_end(token) && matcher_->complete();
    if (!is_over && !matcher_->accept(token)) {
      due_.clear();
      if (!are_given) return internal_error("token {} was sampled, which the answer's grammar does not allow", token);
      return invalid_argument(
          "the given answer does not keep to its form: token {}, {}, is none that structured_output allows there", place, token);
    }
    ++place;
  }
  due_.clear();
  renew_mask();
  if (finished_ || any_allowed()) return {};
  return unsupported("the answer cannot go on: no token of this model continues it as structured_output asks");
}

}  // namespace choral::engine
