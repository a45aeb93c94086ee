// The paged KV layout of one layer: blocks of 32 tokens, keys and values in two arrays.
//   keys   [num_blocks][kv_heads][head_dim][32]           keys transposed, so that lanes run over the 32 keys in q·Kᵀ
//   values [num_blocks][kv_heads][32][v_stride]            v_stride = v_head_dim rounded up to 16, so that rows are whole vectors
// A block of one array is contiguous: copying or swapping a block is one memcpy per array. Latent attention has no values array:
// a token's value is the first v_head_dim elements of its key, stored once. Element types f32, bf16, f16; what is read is
// converted exactly, what is written is rounded to nearest even. A view owns nothing; writers of different slots may run
// in parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checked_math.h"
#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

inline constexpr int64_t kKvBlockTokens = 32;

struct KvCacheView {
  std::byte* keys = nullptr;    // 64-byte aligned
  std::byte* values = nullptr;  // 64-byte aligned; null: values lie in the keys
  DType dtype = DType::kF32;    // f32, bf16 or f16
  int64_t num_blocks = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;    // of keys
  int64_t v_head_dim = 0;  // of values

  bool values_in_keys() const { return values == nullptr; }
};

inline int64_t kv_value_stride(int64_t v_head_dim) { return round_up(v_head_dim, 16); }

// Bytes of one block in the keys array and in the values array of one layer, and of both.
inline int64_t kv_key_block_bytes(DType dtype, int64_t kv_heads, int64_t head_dim) {
  return kv_heads * row_bytes(dtype, head_dim * kKvBlockTokens);
}
inline int64_t kv_value_block_bytes(DType dtype, int64_t kv_heads, int64_t v_head_dim) {
  return kv_heads * row_bytes(dtype, kv_value_stride(v_head_dim) * kKvBlockTokens);
}
inline int64_t kv_block_bytes(DType dtype, int64_t kv_heads, int64_t head_dim, int64_t v_head_dim) {
  return kv_key_block_bytes(dtype, kv_heads, head_dim) + kv_value_block_bytes(dtype, kv_heads, v_head_dim);
}

// Stores token t's k [tokens, kv_heads · head_dim] and v [tokens, kv_heads · v_head_dim] at slots[t] = block · 32 + offset.
// A negative slot is skipped (padding rows); slots are distinct. Where values lie in the keys, v is empty.
void write_kv(const Context& ctx, const KvCacheView& cache, MatrixView<const float> k, MatrixView<const float> v,
              std::span<const int64_t> slots);

// One KV head of one token: k [head_dim] and v [v_head_dim] go to `slot`, which is not negative. For kernels that make k on the
// way, in a cache that has values of their own.
void write_kv_head(const KvCacheView& cache, int64_t slot, int64_t head, const float* k, const float* v);

// Reads one token back as float: k [kv_heads · head_dim], v [kv_heads · v_head_dim]. For tests and for exporting a cache; not
// fast.
void read_kv(const KvCacheView& cache, int64_t slot, std::span<float> k, std::span<float> v);

}  // namespace choral::kernels
