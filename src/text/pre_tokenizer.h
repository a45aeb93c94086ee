// The "pre_tokenizer" of tokenizer.json: steps that split text into the pieces which the model never merges across.
// Thread-safety: immutable; run() works in the caller's scratch space.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "text/encode_budget.h"
#include "text/regex.h"

namespace choral::text {

struct Piece {
  std::string_view text;
  bool at_start;  // it begins where the input begins
};

// Texts that steps have rewritten, by step; kept between runs.
struct PreTokenizerScratch {
  struct Texts {
    std::string piece, part;
  };
  std::vector<Texts> of_step;
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

  // Gives out the parts of `piece` one by one, none of them empty; each is valid during its call. Fails as the budget or `give`
  // does. No list of all parts is made: a caller that has seen enough ends the run.
  Status run(const Piece& piece, EncodeBudget& budget, PreTokenizerScratch& scratch,
             FunctionRef<Status(const Piece&)> give) const;
  bool keeps_all_text() const;

 private:
  class Run;
};

extern const std::string_view kGpt2Pattern;  // ByteLevel's own regex

}  // namespace choral::text
