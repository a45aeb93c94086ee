// The "pre_tokenizer" of tokenizer.json: steps that split text into the pieces which the model never merges across.
// Thread-safety: immutable; run() works in the caller's buffers.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/regex.h"

namespace choral::text {

struct Piece {
  std::string_view text;
  bool at_start;  // it begins where the input begins
};

// What one run needs; reused between runs. Rewritten pieces live in `rewritten` until clear().
struct PieceBuffers {
  std::vector<Piece> pieces, next;
  std::deque<std::string> rewritten;
  void clear() { pieces.clear(), next.clear(), rewritten.clear(); }
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kAlways, kFirst, kNever };

struct PreTokenizerStep {
  enum class Kind { kSplitRegex, kSplitString, kByteLevel, kMetaspace, kDigits, kWhitespace, kWhitespaceSplit, kPunctuation };
  Kind kind;
  std::optional<Regex> regex{};  // kSplitRegex, kByteLevel with use_regex
  std::string pattern{};         // kSplitString
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;            // the matches are what lies between the matches
  bool add_prefix_space = false;  // kByteLevel
  bool to_chars = true;           // kByteLevel: write bytes as characters; false when the model takes bytes itself
  std::string replacement = "▁";  // kMetaspace
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;  // kMetaspace
};

class PreTokenizer {
 public:
  std::vector<PreTokenizerStep> steps;

  // Splits buffers.pieces[from …] in place; what comes out is never empty.
  Status run(PieceBuffers& buffers) const;
};

extern const std::string_view kGpt2Pattern;  // ByteLevel's own regex

}  // namespace choral::text
