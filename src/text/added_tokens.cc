#include "text/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/printable.h"
#include "text/unicode.h"
#include "text/unicode_versions.h"

namespace choral::text {
namespace {

size_t spaces_from(std::string_view text, size_t at) {  // where the white space that begins at `at` ends
  const char* p = text.data() + at;
  const char* const end = text.data() + text.size();
  while (p < end) {
    const char* next = p;
    if (!is_white_space(next_code_point(next))) break;
    p = next;
  }
  return static_cast<size_t>(p - text.data());
}

size_t char_before(std::string_view text, size_t at) {  // at > 0
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

uint32_t code_point_at(std::string_view text, size_t at) {
  const char* p = text.data() + at;
  return next_code_point(p);
}

size_t spaces_before(std::string_view text, size_t at, size_t limit) {  // where the white space that ends at `at` begins
  while (at > limit) {
    const size_t previous = char_before(text, at);
    if (previous < limit || !is_white_space(code_point_at(text, previous))) break;
    at = previous;
  }
  return at;
}

}  // namespace

bool is_word_char(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  if (c == 0x200C || c == 0x200D) return true;    // Join_Control
  if (c >= 0x24B6 && c <= 0x24E9) return true;    // Other_Alphabetic: circled letters …
  if (c >= 0x1F130 && c <= 0x1F149) return true;  // … squared
  if (c >= 0x1F150 && c <= 0x1F169) return true;  // … negative circled
  if (c >= 0x1F170 && c <= 0x1F189) return true;  // … negative squared
  bool word = false;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: word = true; break;
    default: break;
  }
  return word != (find_range(word_differences(), c) != nullptr);
}

Status AddedTokenMatcher::add(std::string_view pattern, const AddedToken& token) {
  if (pattern.empty())
    return unsupported("added token {} (id {}) becomes empty when normalized", quoted(token.content), token.id);
  if (pattern.size() > kMaxLength) {
    return too_large("added token {} has {} bytes; the limit is {}", token.id, pattern.size(), kMaxLength);
  }
  uint64_t node = 0;
  for (const char c : pattern) {
    const uint64_t key = node << 8 | static_cast<unsigned char>(c);
    uint64_t next = edges_.find(key);
    if (next == FlatMap64::kNone) {
      next = entry_at_.size();
      entry_at_.push_back(-1);
      edges_.insert_or_assign(key, next);
    }
    node = next;
  }
  starts_[static_cast<unsigned char>(pattern[0])] = true;
  longest_ = std::max(longest_, pattern.size());
  takes_spaces_ |= token.lstrip || token.rstrip;
  if (entry_at_[node] < 0) {
    entry_at_[node] = static_cast<int32_t>(entries_.size());
    entries_.push_back({token.id, token.single_word, token.lstrip, token.rstrip, token.special});
  }
  return {};
}

const AddedTokenMatcher::Entry* AddedTokenMatcher::longest_at(std::string_view text, size_t at, size_t& end,
                                                              size_t& looked_to) const {
  const Entry* best = nullptr;
  uint64_t node = 0;
  size_t& i = looked_to;
  for (i = at; i < text.size(); ++i) {
    node = edges_.find(node << 8 | static_cast<unsigned char>(text[i]));
    if (node == FlatMap64::kNone) break;
    if (entry_at_[node] >= 0) {
      best = &entries_[entry_at_[node]];
      end = i + 1;
    }
  }
  return best;
}

Status AddedTokenMatcher::split(std::string_view text, bool parse_special, EncodeBudget& budget,
                                FunctionRef<Status(std::string_view, int32_t)> piece) const {
  constexpr uint64_t kStepsPerByte = 4;
  const auto pay = [&budget](size_t bytes) { return budget.work(kStepsPerByte * bytes, "the search for added tokens"); };
  size_t done = 0;  // text before it has been given out
  for (size_t i = 0; i < text.size() && !entries_.empty();) {
    if (!starts_[static_cast<unsigned char>(text[i])]) {
      ++i;
      continue;
    }
    size_t begin = i, end = i, looked_to = i;
    const Entry* entry = longest_at(text, i, end, looked_to);
    CHORAL_RETURN_IF_ERROR(pay(looked_to - begin));
    if (!entry) {
      ++i;
      continue;
    }
    i = end;  // also when the match is turned down below
    if (!parse_special && entry->special) continue;
    if (entry->single_word) {
      if (begin > 0 && is_word_char(code_point_at(text, char_before(text, begin)))) continue;
      if (end < text.size() && is_word_char(code_point_at(text, end))) continue;
    }
    if (entry->lstrip) begin = std::max(spaces_before(text, begin, done), done);
    if (entry->rstrip) end = spaces_from(text, end);
    CHORAL_RETURN_IF_ERROR(pay(end - std::min(begin, end)));
    // White space that an earlier rstrip took may also be a token here; HF then gives the token an empty or reversed range.
    if (done < begin) CHORAL_RETURN_IF_ERROR(piece(text.substr(done, begin - done), -1));
    CHORAL_RETURN_IF_ERROR(piece(text.substr(begin, end - begin), entry->id));
    done = end;
  }
  return done < text.size() ? piece(text.substr(done), -1) : Status();
}

}  // namespace choral::text
