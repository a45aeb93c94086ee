// Tokenizer files carry regular expressions in Oniguruma's Ruby syntax; we run PCRE2. This rewrites the one into the other
// where they read the same letters differently (\s, \w, \h, scripts, POSIX classes, {n,m}+ and {,n}, (?m)), and refuses what
// has no faithful translation (&&, nested classes, \W inside a class, absent operators, conditionals …).
// Thread-safety: pure function.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::text {

// A PCRE2 pattern for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE with "\n" as the only newline.
Result<std::string> pcre2_from_onig(std::string_view pattern);

}  // namespace choral::text
