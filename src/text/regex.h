// A compiled regular expression of a tokenizer file, run by PCRE2 (JIT where it can), with all matches of a text bounded
// together. A match is tried on a short window first, with little work allowed, and PCRE2 tells when it would have had to look
// past the window's end (a partial match). Then both grow, and what was allowed is paid. So a pattern pays for how far it looks,
// which PCRE2's own limits do not see: they count the ways it tries, for one match, and a run is one way however long it is.
// Thread-safety: immutable; find() may run on many threads, each with its own Matcher.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/function_ref.h"
#include "base/status.h"
#include "text/encode_budget.h"

namespace choral::text {

class Regex {
 public:
  static Result<Regex> compile(std::string_view onig_pattern);  // see onig_pattern.h

  // Matches from left to right, none overlapping, as Oniguruma's find_iter gives them: an empty match directly behind the
  // last match is skipped. `subject` is valid UTF-8. Fails when the budget's work is used up, or as `found` does.
  Status find(std::string_view subject, EncodeBudget& budget, FunctionRef<Status(size_t begin, size_t end)> found) const;

 private:
  struct Code;
  class Search;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  static Result<Regex> compile_pcre2(std::string_view pattern, std::string_view shown);
  std::shared_ptr<const Code> code_;
};

}  // namespace choral::text
