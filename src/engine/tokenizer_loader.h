// Finds a model's tokenizer and chat templates: tokenizer.json with tokenizer_config.json in a directory, or the metadata of a
// GGUF file. Templates in files of their own (chat_template.jinja, additional_chat_templates/tool_use.jinja) replace all those of
// tokenizer_config.json, as in transformers.
#pragma once

#include <memory>
#include <vector>

#include "io/model_location.h"
#include "text/tokenizer.h"

namespace choral::engine {

struct LoadedTokenizer {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<text::NamedTemplate> chat_templates;
};

Result<LoadedTokenizer> load_tokenizer(const io::ModelLocation& location);

}  // namespace choral::engine
