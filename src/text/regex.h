// A compiled regular expression of a tokenizer file, run by PCRE2 (JIT where it can), with every match bounded.
// Thread-safety: immutable; find() may run on many threads, each with its own Matcher.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/function_ref.h"
#include "base/status.h"

namespace choral::text {

class Regex {
 public:
  static Result<Regex> compile(std::string_view onig_pattern);  // see onig_pattern.h
  static Result<Regex> compile_literal(std::string_view text);

  // Matches from left to right, none overlapping, as Oniguruma's find_iter gives them: an empty match directly behind the
  // last match is skipped. `subject` is valid UTF-8. Fails when a match would need more than the stated work.
  Status find(std::string_view subject, FunctionRef<void(size_t begin, size_t end)> found) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  static Result<Regex> compile_pcre2(std::string_view pattern, std::string_view shown);
  std::shared_ptr<const Code> code_;
};

}  // namespace choral::text
