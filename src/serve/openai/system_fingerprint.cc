#include "serve/openai/system_fingerprint.h"

#include <span>

#include "base/sha256.h"
#include "base/status.h"

namespace choral::serve {

std::string system_fingerprint(const ModelInfo& model) {
  constexpr size_t kDigits = 10;
  std::string told = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", version(), model.digest, model.architecture,
                                 model.parameters, model.weight_bytes, model.vocab_size, model.kv_cache_dtype, model.cpu_level);
  for (const auto& form : model.layers)
    told += fmt::format("{}\n{}\n{}\n{}\n", form.layers, form.count, form.scheme, form.kernel);
  return "fp_" + to_hex(sha256(std::as_bytes(std::span(told)))).substr(0, kDigits);
}

}  // namespace choral::serve
