// How a text is cut for `choral eval`: into windows of at most so many tokens, one after another, each read by the model from
// nothing, and which tokens of a window count. Values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/checked_math.h"
#include "base/status.h"
#include "text/tokenizer.h"

namespace choral::tools {

struct TextWindows {
  std::vector<int32_t> prefix = {};  // stands before each window's part of the text: BOS, where the tokenizer has it so
  std::vector<int32_t> tokens = {};  // the text's
  int32_t window_tokens = 0;         // with the prefix; more than the prefix has
  int32_t min_context = 1;           // tokens with fewer before them in their window do not count

  int64_t part_tokens() const { return window_tokens - std::ssize(prefix); }
  int64_t count() const { return ceil_div(std::ssize(tokens), part_tokens()); }
  std::vector<int32_t> window(int64_t index) const;
  // The first place of a window whose token counts; the text's very first has nothing before it, and the prefix is no text.
  int32_t first_scored() const { return std::max({1, static_cast<int32_t>(prefix.size()), min_context}); }
  int64_t scored_in(int64_t index) const;
  int64_t scored() const;  // of all windows
};

// What the tokenizer puts before every text.
Result<std::vector<int32_t>> tokens_before_text(const text::Tokenizer& tokenizer);

// invalid_argument: the text is empty or not UTF-8. `name` is for the message.
Status check_text(std::string_view text, std::string_view name);

}  // namespace choral::tools
