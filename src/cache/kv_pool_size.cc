#include "cache/kv_pool_size.h"

#include <algorithm>

#include "base/checked_math.h"

namespace choral::cache {
namespace {

constexpr uint64_t kMostBlocks = 1u << 28;  // ids are int32, the prefix index doubles them

}  // namespace

Result<uint64_t> kv_block_bytes(const KVShape& shape, int32_t block_tokens) {
  if (shape.layers == 0 || shape.kv_heads == 0 || shape.key_dim == 0 || shape.element_bytes == 0 || block_tokens <= 0) {
    return invalid_argument(
        "KV cache shape has a zero: {} layers, {} KV heads, key size {}, {} bytes per element, {} tokens per block", shape.layers,
        shape.kv_heads, shape.key_dim, shape.element_bytes, block_tokens);
  }
  const auto elements = checked_add(shape.key_dim, shape.value_dim);
  const auto values = elements ? checked_mul(*elements, shape.element_bytes) : std::nullopt;
  const auto head = values ? checked_add(*values, shape.scale_bytes_per_head) : std::nullopt;
  const auto heads = head ? checked_mul(*head, shape.kv_heads) : std::nullopt;
  const auto token = heads ? checked_mul(*heads, shape.layers) : std::nullopt;
  const auto block = token ? checked_mul(*token, static_cast<uint64_t>(block_tokens)) : std::nullopt;
  if (!block) {
    return too_large("the KV cache of one block does not fit into 64 bits: {} layers, {} KV heads, key {}, value {}",
                     shape.layers, shape.kv_heads, shape.key_dim, shape.value_dim);
  }
  return *block;
}

Result<int32_t> kv_blocks_in_budget(const KVShape& shape, int32_t block_tokens, uint64_t budget_bytes, int64_t max_model_len,
                                    int64_t max_blocks) {
  CHORAL_TRY(const uint64_t block_bytes, kv_block_bytes(shape, block_tokens));
  if (max_model_len <= 0) return invalid_argument("max_model_len is {}, it must be positive", max_model_len);
  if (max_blocks < 0) return invalid_argument("the cap on KV blocks is {}, it must not be negative", max_blocks);
  const uint64_t tokens = static_cast<uint64_t>(block_tokens);
  const uint64_t needed = (static_cast<uint64_t>(max_model_len) - 1) / tokens + 1;
  const uint64_t fitting = budget_bytes / block_bytes;
  if (fitting < needed) {
    const auto enough = checked_mul(needed, block_bytes);
    return too_large(
        "the KV cache budget of {} bytes holds {} tokens, but one request may have max_model_len = {}; give {} bytes or lower "
        "max_model_len",
        budget_bytes, fitting * tokens, max_model_len, enough ? fmt::format("at least {}", *enough) : "more than 2^64");
  }
  uint64_t blocks = std::min(fitting, kMostBlocks);
  if (max_blocks > 0) blocks = std::min(blocks, std::max(static_cast<uint64_t>(max_blocks), needed));
  if (blocks < needed) {
    return too_large("max_model_len = {} needs {} KV blocks; at most {} are supported", max_model_len, needed, kMostBlocks);
  }
  return static_cast<int32_t>(blocks);
}

}  // namespace choral::cache
