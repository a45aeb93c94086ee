// The paged KV layout of one layer: blocks of 32 tokens, keys and values in two arrays.
//   keys   [num_blocks][kv_heads] × { [head_dim][32] }     keys transposed, so that lanes run over the 32 keys in q·Kᵀ
//   values [num_blocks][kv_heads] × { [32][v_stride] }     v_stride = v_head_dim rounded up to 16, so that rows are whole vectors
// A block of one array is contiguous: copying or swapping a block is one memcpy per array. Latent attention has no values array:
// a token's value is the first v_head_dim elements of its key, stored once. Element types f32, bf16, f16: what is read is
// converted exactly, what is written is rounded to nearest even. Element type int8: what is stored is s·q, each token's key and
// value of each head with a scale of its own, made as quant/row_quant.h says; the scales [2][32], float, of the 32 keys and the
// 32 values, follow the keys of their head. A value that lies in its key has a scale of its own there too, and the other one is
// of the rest of the key: a normed latent and rotated elements are of different size. A view owns nothing; writers of different
// slots may run in parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/checked_math.h"
#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

inline constexpr int64_t kKvBlockTokens = 32;

struct KvCacheView {
  std::byte* keys = nullptr;    // 64-byte aligned
  std::byte* values = nullptr;  // 64-byte aligned; null: values lie in the keys
  DType dtype = DType::kF32;    // f32, bf16, f16 or int8
  int64_t num_blocks = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;    // of keys
  int64_t v_head_dim = 0;  // of values

  bool values_in_keys() const { return values == nullptr; }
};

inline bool is_kv_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kI8;
}

inline int64_t kv_value_stride(int64_t v_head_dim) { return round_up(v_head_dim, 16); }

// Bytes of the scales of one token and head, key's and value's.
inline int64_t kv_scale_bytes(DType dtype) { return dtype == DType::kI8 ? 2 * sizeof(float) : 0; }

// Bytes of one block in the keys array and in the values array of one layer, and of both.
inline int64_t kv_key_block_bytes(DType dtype, int64_t kv_heads, int64_t head_dim) {
  return kv_heads * kKvBlockTokens * (row_bytes(dtype, head_dim) + kv_scale_bytes(dtype));
}
inline int64_t kv_value_block_bytes(DType dtype, int64_t kv_heads, int64_t v_head_dim) {
  return kv_heads * row_bytes(dtype, kv_value_stride(v_head_dim) * kKvBlockTokens);
}
inline int64_t kv_block_bytes(DType dtype, int64_t kv_heads, int64_t head_dim, int64_t v_head_dim) {
  return kv_key_block_bytes(dtype, kv_heads, head_dim) + kv_value_block_bytes(dtype, kv_heads, v_head_dim);
}

// One head of one block, of elements T.
template <class T>
struct KvHeadBlock {
  T* keys;            // [head_dim][32]
  T* values;          // [32][v_stride]; null: they lie in the keys
  float* key_scales;  // [32] each; null unless T is int8
  float* value_scales;
};

template <class T>
KvHeadBlock<T> kv_head_block(const KvCacheView& cache, int64_t block, int64_t head) {
  constexpr bool kScaled = std::is_same_v<T, int8_t>;
  constexpr int64_t kScales = kScaled ? 2 * kKvBlockTokens * static_cast<int64_t>(sizeof(float) / sizeof(T)) : 0;
  const int64_t index = block * cache.kv_heads + head, key_elements = cache.head_dim * kKvBlockTokens;
  T* keys = reinterpret_cast<T*>(cache.keys) + index * (key_elements + kScales);
  KvHeadBlock<T> found{keys, nullptr, nullptr, nullptr};
  if (!cache.values_in_keys()) {
    found.values = reinterpret_cast<T*>(cache.values) + index * kv_value_stride(cache.v_head_dim) * kKvBlockTokens;
  }
  if constexpr (kScaled) {
    found.key_scales = reinterpret_cast<float*>(keys + key_elements);
    found.value_scales = found.key_scales + kKvBlockTokens;
  }
  return found;
}

// Stores token t's k [tokens, kv_heads · head_dim] and v [tokens, kv_heads · v_head_dim] at slots[t] = block · 32 + offset.
// A negative slot is skipped (padding rows); slots are distinct. Where values lie in the keys, v is empty.
void write_kv(const Context& ctx, const KvCacheView& cache, MatrixView<const float> k, MatrixView<const float> v,
              std::span<const int64_t> slots);

// One KV head of one token: k [head_dim] and v [v_head_dim] go to `slot`, which is not negative. For kernels that make k on the
// way, in a cache that has values of their own.
void write_kv_head(CpuLevel level, const KvCacheView& cache, int64_t slot, int64_t head, const float* k, const float* v);

// Reads one token back as float: k [kv_heads · head_dim], v [kv_heads · v_head_dim]. For tests and for exporting a cache; not
// fast.
void read_kv(const KvCacheView& cache, int64_t slot, std::span<float> k, std::span<float> v);

}  // namespace choral::kernels
