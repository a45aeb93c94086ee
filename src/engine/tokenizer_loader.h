// Finds a model's tokenizer and chat templates: tokenizer.json with tokenizer_config.json in a directory, or the metadata of a
// GGUF file. Templates in files of their own (chat_template.jinja, additional_chat_templates/tool_use.jinja) replace all those of
// tokenizer_config.json, as in transformers.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "io/gguf.h"
#include "text/tokenizer.h"

namespace choral::engine {

struct LoadedTokenizer {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<text::NamedTemplate> chat_templates;
};

// `path`: a directory or a file of weights, of which `opened` is the GGUF file, if it is one and somebody has it open already.
Result<LoadedTokenizer> load_tokenizer(const std::filesystem::path& path, const io::GgufFile* opened = nullptr);

}  // namespace choral::engine
