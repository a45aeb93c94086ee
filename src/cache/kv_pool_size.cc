#include "cache/kv_pool_size.h"

#include "base/checked_math.h"

namespace choral::cache {

Result<uint64_t> kv_block_bytes(const KVTokenLayout& layout, int32_t block_tokens) {
  if (layout.layers == 0 || layout.kv_heads == 0 || layout.key_dim == 0 || layout.element_bytes == 0 || block_tokens <= 0) {
    return invalid_argument(
        "KV cache shape has a zero: {} layers, {} KV heads, key size {}, {} bytes per element, {} tokens per block",
        layout.layers, layout.kv_heads, layout.key_dim, layout.element_bytes, block_tokens);
  }
  const auto elements = checked_add(layout.key_dim, layout.value_dim);
  const auto values = elements ? checked_mul(*elements, layout.element_bytes) : std::nullopt;
  const auto head = values ? checked_add(*values, layout.scale_bytes_per_head) : std::nullopt;
  const auto heads = head ? checked_mul(*head, layout.kv_heads) : std::nullopt;
  const auto token = heads ? checked_mul(*heads, layout.layers) : std::nullopt;
  const auto block = token ? checked_mul(*token, static_cast<uint64_t>(block_tokens)) : std::nullopt;
  if (!block) {
    return too_large("the KV cache of one block does not fit into 64 bits: {} layers, {} KV heads, key {}, value {}",
                     layout.layers, layout.kv_heads, layout.key_dim, layout.value_dim);
  }
  return *block;
}

}  // namespace choral::cache
