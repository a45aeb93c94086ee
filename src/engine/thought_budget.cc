#include "engine/thought_budget.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/ascii.h"
#include "base/utf8.h"

namespace choral::engine {
namespace {

constexpr size_t kMostMarks = 8;
constexpr size_t kMostMarkBytes = 256;
constexpr size_t kMostBlanks = 512;  // before the mark that begins thoughts

struct PlacedMark {
  size_t at = std::string_view::npos;
  size_t end = 0;
};

// The first one in the text.
PlacedMark find_mark(std::string_view text, const std::vector<std::string>& marks) {
  PlacedMark first;
  for (const auto& mark : marks) {
    if (const size_t at = text.find(mark); at < first.at) first = {at, at + mark.size()};
  }
  return first;
}

bool may_become(std::string_view text, const std::vector<std::string>& marks) {
  return std::any_of(marks.begin(), marks.end(), [text](const std::string& mark) { return mark.starts_with(text); });
}

// The last bytes are a character that is not whole yet.
bool ends_within_character(std::string_view text) {
  for (size_t count = 1; count <= std::min<size_t>(3, text.size()); ++count) {
    const std::string_view last = text.substr(text.size() - count);
    if ((static_cast<unsigned char>(last.front()) & 0xC0) != 0x80) return check_utf8(last).incomplete;
  }
  return false;
}

Status check_marks(std::string_view name, const std::vector<std::string>& marks) {
  if (marks.size() > kMostMarks)
    return too_large("thought_limit.{} has {} marks; {} are allowed", name, marks.size(), kMostMarks);
  for (const auto& mark : marks) {
    if (mark.empty() || mark.size() > kMostMarkBytes)
      return invalid_argument("thought_limit.{} has a mark of {} bytes; give 1 to {}", name, mark.size(), kMostMarkBytes);
  }
  return {};
}

}  // namespace

struct ThoughtBudget::Terms {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  ThoughtLimit limit;
  std::vector<int32_t> end;  // the forced one's tokens
  size_t tail_bytes = 0;     // in which a mark, or a character, may have begun
};

Result<std::shared_ptr<const ThoughtBudget::Terms>> ThoughtBudget::read(const ThoughtLimit& limit,
                                                                        std::shared_ptr<const text::Tokenizer> tokenizer) {
  if (limit.max_tokens == -1) return std::shared_ptr<const Terms>();
  if (limit.max_tokens < -1)
    return invalid_argument("thought_limit.max_tokens is {}; give 0 or more, or -1 for none", limit.max_tokens);
  if (tokenizer == nullptr) return unsupported("thought_limit needs a tokenizer, which this model does not have");
  CHORAL_RETURN_IF_ERROR(check_marks("begins", limit.begins));
  CHORAL_RETURN_IF_ERROR(check_marks("ends", limit.ends));
  CHORAL_RETURN_IF_ERROR(check_marks("forced_end", {limit.forced_end}));
  auto terms = std::make_shared<Terms>();
  CHORAL_TRY(terms->end, tokenizer->encode(limit.forced_end, {.add_special_tokens = false}));
  if (terms->end.empty()) return invalid_argument("thought_limit.forced_end has no tokens");
  constexpr size_t kCharacter = 4;
  terms->tail_bytes = kCharacter;
  for (const auto* marks : {&limit.begins, &limit.ends}) {
    for (const auto& mark : *marks) terms->tail_bytes = std::max(terms->tail_bytes, mark.size());
  }
  terms->tokenizer = std::move(tokenizer);
  terms->limit = limit;
  return std::shared_ptr<const Terms>(std::move(terms));
}

ThoughtBudget::ThoughtBudget(std::shared_ptr<const Terms> terms) : terms_(std::move(terms)), part_(Part::kBegin) {
  for (std::string* text : {&text_, &kept_text_}) text->reserve(kMostBlanks + kMostMarkBytes);
  if (!terms_->limit.open) return;
  part_ = Part::kThoughts;
  force_when_due();
}

int32_t ThoughtBudget::forced(int32_t behind) const {
  const size_t place = end_place_ + static_cast<size_t>(behind);
  return part_ == Part::kForced && place < terms_->end.size() ? terms_->end[place] : kAny;
}

int64_t ThoughtBudget::free_count() const {
  if (part_ == Part::kForced) return 0;
  if (part_ != Part::kThoughts) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(terms_->limit.max_tokens - thought_ - 1, 0);
}

// Outside of thoughts a budget that is used up takes effect behind the mark that begins more, which may end with any token.
int32_t ThoughtBudget::free_of(std::span<const int32_t> tokens) {
  if (part_ == Part::kRest) return static_cast<int32_t>(tokens.size());
  kept_text_ = text_;
  const Part part = part_;
  const int64_t thought = thought_;
  const size_t end_place = end_place_;
  int32_t count = 0;
  for (const int32_t token : tokens) {
    accept(token);
    if (part_ == Part::kForced) break;
    ++count;
  }
  text_.swap(kept_text_);
  part_ = part;
  thought_ = thought;
  end_place_ = end_place;
  return count;
}

void ThoughtBudget::accept(int32_t token) {
  if (part_ == Part::kRest) return;
  const auto& end = terms_->end;
  if (part_ == Part::kForced) {
    if (++end_place_ < end.size()) return;
    text_.clear();
    return end_thoughts();
  }
  text_ += terms_->tokenizer->token_bytes(token);
  end_place_ = token == end[end_place_] ? end_place_ + 1 : token == end[0] ? 1 : 0;
  if (end_place_ == end.size()) end_place_ = 0;
  if (part_ == Part::kBegin) {
    read_begin();
  } else if (part_ == Part::kThoughts) {
    ++thought_;
    read_thoughts();
  } else {
    read_between();
  }
}

void ThoughtBudget::read_begin() {
  const size_t blanks = std::min(text_.find_first_not_of(kBlanks), text_.size());
  const std::string_view text = std::string_view(text_).substr(blanks);
  const PlacedMark mark = find_mark(text, terms_->limit.begins);
  if (mark.at == 0) return begin_thoughts(blanks + mark.end);
  if (blanks <= kMostBlanks && may_become(text, terms_->limit.begins)) return;
  part_ = terms_->limit.again ? Part::kBetween : Part::kRest;
  if (part_ == Part::kBetween) read_between();
}

void ThoughtBudget::begin_thoughts(size_t mark_end) {
  text_.erase(0, mark_end);
  part_ = Part::kThoughts;
  read_thoughts();
}

void ThoughtBudget::read_thoughts() {
  const PlacedMark mark = find_mark(text_, terms_->limit.ends);
  if (mark.at != std::string_view::npos) {
    text_.erase(0, mark.end);
    return end_thoughts();
  }
  force_when_due();
  keep_tail();
}

void ThoughtBudget::end_thoughts() {
  end_place_ = 0;
  part_ = terms_->limit.again ? Part::kBetween : Part::kRest;
}

void ThoughtBudget::read_between() {
  const PlacedMark mark = find_mark(text_, terms_->limit.begins);
  if (mark.at != std::string_view::npos) return begin_thoughts(mark.end);
  keep_tail();
}

void ThoughtBudget::force_when_due() {
  if (thought_ >= terms_->limit.max_tokens && !ends_within_character(text_)) part_ = Part::kForced;
}

void ThoughtBudget::keep_tail() {
  if (text_.size() > terms_->tail_bytes) text_.erase(0, text_.size() - terms_->tail_bytes);
}

}  // namespace choral::engine
