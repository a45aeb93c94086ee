#include "engine/answer_grammar.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace choral::engine {
namespace {

bool has_bit(std::span<const uint32_t> words, int32_t token) {
  const auto word = static_cast<size_t>(token) / 32;
  return token >= 0 && word < words.size() && (words[word] >> (static_cast<uint32_t>(token) % 32) & 1U) != 0;
}

void set_bit(std::span<uint32_t> words, int32_t token, bool allowed) {
  const auto word = static_cast<size_t>(token) / 32;
  if (token < 0 || word >= words.size()) return;
  const uint32_t bit = 1U << (static_cast<uint32_t>(token) % 32);
  words[word] = allowed ? words[word] | bit : words[word] & ~bit;
}

bool any_allowed(std::span<const uint32_t> words) {
  return std::any_of(words.begin(), words.end(), [](uint32_t word) { return word != 0; });
}

}  // namespace

AnswerGrammar::AnswerGrammar(std::unique_ptr<text::GrammarMatcher> matcher, int32_t vocab, std::vector<int32_t> end_ids,
                             std::vector<int32_t> banned_ids)
    : matcher_(std::move(matcher)),
      end_ids_(std::move(end_ids)),
      banned_ids_(std::move(banned_ids)),
      words_((static_cast<size_t>(vocab) + 31) / 32),
      mask_(std::make_unique<uint32_t[]>(words_)) {
  static_assert(kMostAhead <= text::GrammarMatcher::kMostRollback);
  due_.reserve(1);
  ahead_.reserve(kMostAhead);
  make_mask(0);
  masks_made_ = 0;  // the account is of what comes after tokens
}

Result<std::unique_ptr<AnswerGrammar>> AnswerGrammar::make(const text::Grammar& grammar, int32_t vocab,
                                                           std::vector<int32_t> end_ids, std::vector<int32_t> banned_ids) {
  CHORAL_TRY(auto matcher, grammar.matcher());
  std::unique_ptr<AnswerGrammar> made(new AnswerGrammar(std::move(matcher), vocab, std::move(end_ids), std::move(banned_ids)));
  if (any_allowed(made->mask())) return made;
  return invalid_argument("no answer of this model's tokens is one that structured_output allows");
}

bool AnswerGrammar::is_end(int32_t token) const { return std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end(); }

bool AnswerGrammar::allows(int32_t behind, int32_t token) const { return has_bit(words(behind), token); }

void AnswerGrammar::make_mask(int32_t behind) {
  const auto mask = words(behind);
  Place& place = places_[slot(behind)];
  matcher_->fill_mask(mask);
  ++masks_made_;
  place.complete = matcher_->complete();
  for (const int32_t id : banned_ids_) set_bit(mask, id, false);
  for (const int32_t id : end_ids_) set_bit(mask, id, false);
  place.finished = place.complete && !any_allowed(mask);
  for (const int32_t id : end_ids_) set_bit(mask, id, place.complete);
}

Status AnswerGrammar::check_goes_on() const {
  if (finished() || any_allowed(mask())) return {};
  return unsupported("the answer cannot go on: no token of this model continues it as structured_output asks");
}

Status AnswerGrammar::accept(int32_t token) {
  CHORAL_CHECK(!is_due(), "a token came before the mask behind the one before it");
  if (is_end(token) && places_[first_].complete) return {};  // the answer is over
  if (!ahead_.empty() && ahead_.front() == token) {
    ahead_.erase(ahead_.begin());
    first_ = slot(1);
    return check_goes_on();
  }
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
  forget_ahead(0);
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
  make_mask(0);
  return check_goes_on();
}

void AnswerGrammar::forget_ahead(size_t kept) {
  if (ahead_.size() > kept) matcher_->rollback(static_cast<int32_t>(ahead_.size() - kept));
  ahead_.resize(std::min(ahead_.size(), kept));
}

void AnswerGrammar::make_room_ahead() {
  if (masks_ahead_ == nullptr) masks_ahead_.reset(static_cast<uint32_t*>(std::calloc(kMostAhead * words_, sizeof(uint32_t))));
}

int32_t AnswerGrammar::look_ahead(std::span<const int32_t> tokens, FunctionRef<bool()> goes_on) {
  CHORAL_CHECK(!is_due() && std::ssize(tokens) <= kMostAhead, "it looks ahead from a token with a mask, not too far");
  if (masks_ahead_ == nullptr) return 0;
  const auto differs = std::mismatch(ahead_.begin(), ahead_.end(), tokens.begin(), tokens.end()).first;
  if (const auto same = static_cast<size_t>(differs - ahead_.begin()); same < tokens.size()) forget_ahead(same);
  while (ahead_.size() < tokens.size() && goes_on()) {
    const auto behind = static_cast<int32_t>(ahead_.size());
    const int32_t token = tokens[ahead_.size()];
    if (is_end(token) || !allows(behind, token) || !matcher_->accept(token)) break;
    ahead_.push_back(token);
    make_mask(behind + 1);
  }
  return static_cast<int32_t>(std::min(ahead_.size(), tokens.size()));
}

int32_t AnswerGrammar::likely(std::span<int32_t> tokens) {
  forget_ahead(0);
  return matcher_->likely(tokens);
}

void AnswerGrammar::grant_wish(FunctionRef<bool()> goes_on) {
  const std::span<const int32_t> wished = std::span(wish.tokens).first(static_cast<size_t>(wish.count));
  std::array<int32_t, kMostAhead> found = {};
  const auto look_at_likely = [&] {
    if (wish.likely_count == 0) return false;
    ahead_is_likely_ = true;
    const auto count = static_cast<size_t>(likely(std::span(found).first(static_cast<size_t>(wish.likely_count))));
    return look_ahead(std::span(found).first(count), goes_on) > 0;
  };
  if (wish.likely_first && look_at_likely()) return;
  ahead_is_likely_ = false;
  if (look_ahead(wished, goes_on) == 0 && !wish.likely_first) look_at_likely();
}

}  // namespace choral::engine
