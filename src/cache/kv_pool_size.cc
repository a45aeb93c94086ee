#include "cache/kv_pool_size.h"

#include <optional>

#include "base/checked_math.h"

namespace choral::cache {
namespace {

// Bytes of one token in one layer; none: more than 64 bits hold.
std::optional<uint64_t> token_bytes(const KVTokenLayout& layout) {
  const auto elements = checked_add(layout.key_dim, layout.value_dim);
  const auto values = elements ? checked_mul(*elements, layout.element_bytes) : std::nullopt;
  const auto head = values ? checked_add(*values, layout.scale_bytes_per_head) : std::nullopt;
  return head ? checked_mul(*head, layout.kv_heads) : std::nullopt;
}

}  // namespace

Result<uint64_t> kv_block_bytes(std::span<const KVTokenLayout> layers, int32_t block_tokens) {
  if (layers.empty() || block_tokens <= 0) {
    return invalid_argument("a KV cache of {} layers and blocks of {} tokens holds nothing", layers.size(), block_tokens);
  }
  std::optional<uint64_t> total = 0;
  for (size_t i = 0; i < layers.size() && total; ++i) {
    const auto& layout = layers[i];
    if (layout.kv_heads == 0 || layout.key_dim == 0 || layout.element_bytes == 0) {
      return invalid_argument("KV cache shape of layer {} has a zero: {} KV heads, key size {}, {} bytes per element", i,
                              layout.kv_heads, layout.key_dim, layout.element_bytes);
    }
    const auto token = token_bytes(layout);
    total = token ? checked_add(*total, *token) : std::nullopt;
  }
  if (total) total = checked_mul(*total, static_cast<uint64_t>(block_tokens));
  if (total) return *total;
  const auto& first = layers.front();
  return too_large("the KV cache of one block does not fit into 64 bits: {} layers, the first with {} KV heads, key {}, value {}",
                   layers.size(), first.kv_heads, first.key_dim, first.value_dim);
}

}  // namespace choral::cache
