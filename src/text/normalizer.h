// The "normalizer" of tokenizer.json: steps that rewrite the text before it is split.
// Thread-safety: immutable; apply() is const and keeps no state.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/encode_budget.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace choral::text {

struct NormalizerStep {
  enum class Kind { kUnicode, kLowercase, kStripAccents, kNmt, kPrepend, kReplaceString, kReplaceRegex, kStrip, kByteLevel };
  Kind kind;
  NormalForm form = NormalForm::kNfc;  // kUnicode
  std::string pattern{};               // kReplaceString
  std::string content{};               // kPrepend, kReplace*
  std::optional<Regex> regex{};        // kReplaceRegex
  bool left = false, right = false;    // kStrip
};

class Normalizer {
 public:
  std::vector<NormalizerStep> steps;

  bool empty() const { return steps.empty(); }
  // Writes into `out`. `at_start` tells whether the first character came from the very start of the input and is kept up to
  // date: Metaspace's "first" asks for it.
  Status apply(std::string_view in, EncodeBudget& budget, std::string& out, bool& at_start) const;
  // One character of the output stands for this many bytes of input at most, over its own; 0 when for any number.
  size_t most_shrinking() const;

 private:
  Status apply_step(const NormalizerStep& step, std::string_view in, EncodeBudget& budget, std::string& out,
                    bool& at_start) const;
};

// All places of `pattern` (not empty) in `in` changed to `content`; `stage` for the budget's message.
Status replace_all(std::string_view in, std::string_view pattern, std::string_view content, EncodeBudget& budget,
                   std::string_view stage, std::string& appended);

}  // namespace choral::text
