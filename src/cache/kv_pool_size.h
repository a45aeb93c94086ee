// How much memory KV blocks take. Numbers come from config files and flags: every product is checked. Pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace choral::cache {

// What one token leaves behind in one layer: `kv_heads` keys of `key_dim` and values of `value_dim` elements, plus scales of
// quantised caches. MLA: kv_heads = 1, key_dim = latent + rope, value_dim = 0.
struct KVTokenLayout {
  uint64_t kv_heads = 0;
  uint64_t key_dim = 0;
  uint64_t value_dim = 0;
  uint64_t element_bytes = 4;
  uint64_t scale_bytes_per_head = 0;  // key's and value's together
  int32_t window = 0;                 // of the positions before it, its own included, that a token sees; 0: all

  bool operator==(const KVTokenLayout&) const = default;
};

// Bytes of one block that has a place in all of `layers`.
Result<uint64_t> kv_block_bytes(std::span<const KVTokenLayout> layers, int32_t block_tokens);

}  // namespace choral::cache
