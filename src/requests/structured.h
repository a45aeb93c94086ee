// What a body says of the form its answer must have: OpenAI's response_format, vLLM's structured_outputs, llama.cpp's grammar.
// For .cc files only (requests/json.h). Pure; any thread.
#pragma once

#include "choral/types.h"
#include "requests/json.h"

namespace choral::requests {

// {"type": "text" | "json_object" | "json_schema" | "structural_tag", …}; a `schema` beside the type is taken too, as llama.cpp
// has it.
Status read_response_format(std::string_view name, const Json& json, Request& request);
// {"json" | "regex" | "choice" | "grammar" | "json_object" | "structural_tag": …}, exactly one of them.
Status read_structured_outputs(std::string_view name, const Json& json, Request& request);

// vLLM's older names for these: guided_json, guided_regex, guided_choice, guided_grammar.
Status read_guided(std::string_view name, const Json& json, Request& request);

// Members of the body itself: llama.cpp's grammar and json_schema, SGLang's regex and ebnf. An empty text asks for nothing.
Status read_body_form(std::string_view name, const Json& json, Request& request);

}  // namespace choral::requests
