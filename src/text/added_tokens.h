// Tokens that are cut out of the text before anything else sees it (control tokens, "<think>", runs of newlines …).
// Leftmost-longest matching over a byte trie, as HF's Aho-Corasick does it, with single_word, lstrip and rstrip.
// Two matchers exist: one for the raw text, one for what the normalizer made of it.
// Thread-safety: immutable after building.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "text/encode_budget.h"
#include "text/flat_hash.h"
#include "text/regex.h"

namespace choral::text {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = true;
  bool special = false;

  bool operator==(const AddedToken&) const = default;
};

class AddedTokenMatcher {
 public:
  static constexpr size_t kMaxLength = 4096;  // of one token, bytes

  // `pattern` is what to look for, `token` whose id and flags apply. The first of equal patterns wins.
  Status add(std::string_view pattern, const AddedToken& token);
  bool empty() const { return entries_.empty(); }

  // Calls piece(text, id) for all of `text` in order: id is -1 for text between tokens, which is never empty.
  // Special tokens are passed over as text when `parse_special` is false. Fails as the budget or `piece` does.
  Status split(std::string_view text, bool parse_special, EncodeBudget& budget,
               FunctionRef<Status(std::string_view piece, int32_t id)> piece) const;
  // The most bytes of text that one token takes; 0 when it is any number, for white space beside it goes too.
  size_t longest() const { return takes_spaces_ ? 0 : longest_; }

 private:
  struct Entry {
    int32_t id;
    bool single_word, lstrip, rstrip, special;
  };
  const Entry* longest_at(std::string_view text, size_t at, size_t& end, size_t& looked_to) const;

  std::vector<Entry> entries_;
  FlatMap64 edges_;                    // node << 8 | byte -> node
  std::vector<int32_t> entry_at_{-1};  // by node
  std::array<bool, 256> starts_{};
  size_t longest_ = 1;
  bool takes_spaces_ = false;
};

bool is_word_char(uint32_t code_point);  // \w of Rust's regex crate

}  // namespace choral::text
