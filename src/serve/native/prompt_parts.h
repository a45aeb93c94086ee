// llama.cpp's prompts: a text, token ids, both in one list, {"prompt_string": …}, or a list of such. For .cc files only
// (serve/openai/json.h). Pure; any thread.
#pragma once

#include <vector>

#include "choral/llm.h"
#include "serve/openai/json.h"

namespace choral::serve {

// What follows each other in one prompt: texts, and ids between them.
using PromptParts = std::vector<Prompt>;

// Appends the prompts that the value is, at most `most`.
Status read_prompt_parts(std::string_view name, const Json& json, size_t most, std::vector<PromptParts>& out);

// A text, or texts and ids one behind the other.
Status read_mixed_prompt(std::string_view name, const Json& json, PromptParts& out);

// All ids of it. Without `parse_special` a text that spells a special token is text like any other.
Result<std::vector<int32_t>> tokens_of_parts(const PromptParts& parts, const Vocabulary& vocabulary, bool add_special_tokens,
                                             bool parse_special, size_t most_tokens);

// One text, or one list of ids. A text that other parts follow, or go before, is tokenised as it would be alone, with BOS and the
// like where it comes first. too_large: more than `most_tokens`.
Result<Prompt> joined_prompt(PromptParts parts, const Vocabulary& vocabulary, bool add_special_tokens, size_t most_tokens);

}  // namespace choral::serve
