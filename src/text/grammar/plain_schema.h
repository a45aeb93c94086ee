// Reads a JSON schema that SchemaAutomaton serves: every keyword in it that says anything about a value is one of type,
// properties, required, items, minItems, maxItems, minLength, maxLength, minimum, maximum, exclusiveMinimum, exclusiveMaximum (of
// integers), enum and const of scalars, anyOf and oneOf whose choices begin with different bytes, $ref without a circle, and
// additionalProperties or additionalItems that are false. All others are the library's. What is accepted is what the library
// accepts: properties in the schema's order and no others, white space where JSON has it. Thread-safety: a pure function.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "text/grammar/schema_automaton.h"

namespace choral::text {

// The schema has passed check_json_schema(). Null: it is not of this kind.
std::shared_ptr<const SchemaAutomaton> read_plain_schema(std::string_view schema, std::shared_ptr<const JsonTokens> tokens);

}  // namespace choral::text
