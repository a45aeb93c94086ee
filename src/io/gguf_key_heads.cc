// How many key heads the layers of a GGUF file's model have.
#include <algorithm>

#include "io/gguf_names.h"

namespace choral::io {

Result<std::vector<int64_t>> gguf_kv_heads(const ConfigMap& metadata, std::string_view architecture, int64_t layers) {
  const std::string key = fmt::format("{}.attention.head_count_kv", architecture);
  CHORAL_TRY(auto heads, metadata.get_int_or_ints(key, {0, 1 << 24}));
  if (heads.size() == 1) heads.resize(static_cast<size_t>(layers), heads.front());
  if (std::ssize(heads) != layers) {
    return corrupt("{} has {} numbers for {} layers", metadata.path_of(key), heads.size(), layers);
  }
  const int64_t most = heads.empty() ? 0 : *std::max_element(heads.begin(), heads.end());
  for (const int64_t count : heads) {
    if (count == 0 || count == most) continue;
    return unsupported("{} has layers with {} and with {} key heads; all that have some are alike in models of this family",
                       metadata.path_of(key), count, most);
  }
  if (most == 0) return corrupt("{}: no layer has a key head", metadata.path_of(key));
  return heads;
}

Result<int64_t> gguf_key_heads(const ConfigMap& metadata, const GgufArchitecture& architecture, int64_t absent) {
  if (!architecture.mamba2) {
    return metadata.get_int_or(fmt::format("{}.attention.head_count_kv", architecture.name), absent, kPositive);
  }
  CHORAL_TRY(const int64_t layers, metadata.get_int(fmt::format("{}.block_count", architecture.name), {1, 4096}));
  CHORAL_TRY(const auto heads, gguf_kv_heads(metadata, architecture.name, layers));
  return *std::max_element(heads.begin(), heads.end());
}

}  // namespace choral::io
