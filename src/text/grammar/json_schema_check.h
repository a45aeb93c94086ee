// Looks at a JSON schema, or at a structural tag with schemas in it, before the library does: size, depth, regular expressions,
// counts, types, references. What passes is well-formed and bounded; whether the library can serve it is the library's to say.
// Keywords that nobody here knows are left alone, as JSON Schema wants. Thread-safety: pure functions.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/grammar/grammar.h"

namespace choral::text {

// invalid_argument, too_large or unsupported, with the place: "JSON schema, properties.age.type: …".
Status check_json_schema(std::string_view schema, const GrammarLimits& limits);
Status check_structural_tag(std::string_view tag, const GrammarLimits& limits);

// Whether a schema's keyword says anything of what a value may be; those that nobody here knows do not.
bool is_schema_keyword(std::string_view name);

// Grammars in EBNF: size, depth of parentheses, repetitions, and that there is a rule "root".
Status check_ebnf(std::string_view grammar, const GrammarLimits& limits);

}  // namespace choral::text
