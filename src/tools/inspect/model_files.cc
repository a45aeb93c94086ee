#include "tools/model_files.h"

#include "engine/model_loader.h"

namespace choral::tools {

Result<std::shared_ptr<const text::Tokenizer>> open_tokenizer(const EngineOptions& options) {
  CHORAL_TRY(auto files, engine::open_model_files(options));
  return std::move(files.tokenizer);
}

Result<std::vector<std::string>> read_base_names(const EngineOptions& options) {
  CHORAL_TRY(auto files, engine::open_model_files(options));
  return std::move(files.base_names);
}

}  // namespace choral::tools
