// How many KV blocks a memory budget holds. Numbers come from config files and flags: every product is checked.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace choral::cache {

// What one token leaves behind, per layer: `kv_heads` keys of `key_dim` and values of `value_dim` elements, plus scales of
// quantised caches. MLA: kv_heads = 1, key_dim = latent + rope, value_dim = 0.
struct KVShape {
  uint64_t layers = 0;
  uint64_t kv_heads = 0;
  uint64_t key_dim = 0;
  uint64_t value_dim = 0;
  uint64_t element_bytes = 4;
  uint64_t scale_bytes_per_head = 0;  // key's and value's together
};

// Bytes of one block in all layers.
Result<uint64_t> kv_block_bytes(const KVShape& shape, int32_t block_tokens);

// Blocks that fit into budget_bytes. At least what one sequence of max_model_len tokens needs, or an error that says which budget
// would do. Capped at max_blocks (pass what max_num_seqs sequences of full length can use; 0 = no cap).
Result<int32_t> kv_blocks_in_budget(const KVShape& shape, int32_t block_tokens, uint64_t budget_bytes, int64_t max_model_len,
                                    int64_t max_blocks);

}  // namespace choral::cache
