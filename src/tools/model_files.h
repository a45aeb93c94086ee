// What a model's files say without its weights: its tokenizer, and the names that adapters may know it by.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "choral/llm.h"
#include "text/tokenizer.h"

namespace choral::tools {

// Of options.tokenizer, else of options.model.
Result<std::shared_ptr<const text::Tokenizer>> open_tokenizer(const EngineOptions& options);

// All that options.model is called: its name first, its path, what the user wrote, what its files say.
Result<std::vector<std::string>> read_base_names(const EngineOptions& options);

}  // namespace choral::tools
