// Where the Unicode tables of our libraries and those behind HF's tokenizers differ: PCRE2 10.42 has Unicode 14 and utf8proc
// 2.8 has 15, while Oniguruma has 16, Rust 17 and some of the crates it uses stay at 8 to 13. The tables list the code points
// whose answer changes, found by asking the other side for every code point; all of them are rare, none may be wrong.
// Thread-safety: constants.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace choral::text {

struct CodePointRange {
  uint32_t first, last;
};
struct NewCharacters {  // assigned after Unicode 14
  uint32_t first, last;
  char category[3];
};
struct LowercaseRange {
  uint32_t first, last;
  int32_t distance;
};

std::span<const NewCharacters> new_characters();
std::span<const CodePointRange> new_han();
std::span<const CodePointRange> numeric_differences();
std::span<const CodePointRange> punctuation_differences();
std::span<const CodePointRange> mark_differences();
std::span<const CodePointRange> word_differences();
std::span<const CodePointRange> newer_decompositions();  // which HF's normalizer does not know yet
std::span<const LowercaseRange> newer_lowercase();

// The range with c, or null. Ranges are in order.
template <class Range>
const Range* find_range(std::span<const Range> ranges, uint32_t c) {
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), c, [](uint32_t v, const Range& r) { return v < r.first; });
  if (it == ranges.begin()) return nullptr;
  return (it - 1)->last >= c ? &*(it - 1) : nullptr;
}

}  // namespace choral::text
