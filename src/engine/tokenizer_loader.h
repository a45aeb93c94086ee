// Finds a model's tokenizer and chat template: tokenizer.json with tokenizer_config.json and chat_template.jinja in a directory,
// or the metadata of a GGUF file.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace choral::engine {

struct LoadedTokenizer {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::string chat_template;  // empty when there is none
};

Result<LoadedTokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace choral::engine
