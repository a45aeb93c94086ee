// The parts of tokenizer.json and tokenizer_config.json, one reader each; tokenizer_json.cc puts them together.
// Thread-safety: functions on the caller's data.
#pragma once

#include <simdjson.h>

#include <vector>

#include "base/status.h"
#include "text/tokenizer_parts.h"

namespace choral::text {

using JsonElement = simdjson::dom::element;

// The text as a document that lives as long as `parser` and is not read over.
Result<JsonElement> parse_json(simdjson::dom::parser& parser, std::string_view json);

Status read_normalizer(JsonElement element, std::vector<NormalizerStep>& steps, int depth = 0);
Status read_pre_tokenizer(JsonElement element, std::vector<PreTokenizerStep>& steps, int depth = 0);
Status read_decoder(JsonElement element, std::vector<DecoderStep>& steps, int depth = 0);
Status check_decoder(const std::vector<DecoderStep>& steps);
Status read_post_processor(JsonElement element, std::vector<Template>& templates, int depth = 0);

// The "model" object: fills the model vocabulary and makes the model. `size` is what HF counts as the model's tokens.
Status read_model(JsonElement element, TokenizerBuilder& builder, size_t& size);
Result<std::vector<TextPair>> read_merges(simdjson::dom::array list);  // views of the document
Result<std::vector<AddedToken>> read_added_tokens(simdjson::dom::array array);

// What transformers adds from tokenizer_config.json: special tokens by role, added_tokens_decoder, templates, clean-up, and
// for the Llama and Gemma classes add_bos_token / add_eos_token in place of the file's post-processor.
Status read_tokenizer_config(JsonElement root, TokenizerBuilder& builder, size_t model_size);

}  // namespace choral::text
