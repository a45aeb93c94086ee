// The paged cache in this plug-in's own order: what a block of 32 tokens has of a head lies in the fragments of mma.sync that
// attention multiplies, so that a lane's operands are 16 bytes in one place (ptx.h has the layout).
//   keys   [block][kv_head][k16 of the head][16 tokens, twice]: A fragments, rows are tokens
//            a last half k16 has half a fragment, registers 0 and 1 of each lane
//   values [block][kv_head][m16 of the head][16 tokens, twice]: A fragments, rows are the head's elements
// A lane's registers lie in the order 0, 2, 1, 3: two that follow each other are B's, of eight tokens or elements.
// An f32 cache has two bf16 planes, high and low, one fragment after another: 16 bits of each number.
#pragma once

#include "choral/plugin.h"
#include "element_place.h"
#include "launch.h"
#include "ptx.h"

namespace choral_cuda {

inline constexpr int kCacheBlockTokens = 32;
inline constexpr int kFragment = 256, kHalfFragment = 128;  // elements of 16x16 and 16x8

CHORAL_ANYWHERE int cache_place(int row, int column) {
  const int lane = row % 8 * 4 + column % 8 / 2;
  return lane * 8 + (row / 8 * 2 + column / 8) * 2 + column % 2;
}

struct CacheView {
  uint16_t* keys;
  uint16_t* values;  // null: in the keys
  int64_t blocks, kv_heads;
  int head_dim, v_head_dim;  // of values as stored: a multiple of 16
  int planes;                // 2: f32
  bool is_f16;

  explicit CacheView(const choral_kv_cache& cache)
      : keys(static_cast<uint16_t*>(cache.keys)),
        values(static_cast<uint16_t*>(cache.values)),
        blocks(cache.blocks),
        kv_heads(cache.kv_heads),
        head_dim(static_cast<int>(cache.head_dim)),
        v_head_dim(static_cast<int>(round_up<int64_t>(cache.v_head_dim, 16))),
        planes(cache.dtype == CHORAL_F32 ? 2 : 1),
        is_f16(cache.dtype == CHORAL_F16) {}

  // Where a head's part of a block begins.
  __device__ __forceinline__ uint16_t* key_block(int64_t block, int64_t head) const {
    return keys + (block * kv_heads + head) * kCacheBlockTokens * head_dim * planes;
  }
  __device__ __forceinline__ uint16_t* value_block(int64_t block, int64_t head) const {
    return values + (block * kv_heads + head) * kCacheBlockTokens * v_head_dim * planes;
  }

  __device__ __forceinline__ void store(uint16_t* fragment, int plane_elements, int place, float value) const {
    if (is_f16) {  // what f16 can't hold is its largest number: an infinity would be a NaN to rows that do not see it
      constexpr float kLargest = 65504.0f;
      value = value > kLargest ? kLargest : value < -kLargest ? -kLargest : value;
      fragment[place] = static_cast<uint16_t>(pack_f16(value, 0.0f));
      return;
    }
    const uint32_t high = pack_bf16(value, 0.0f);
    fragment[place] = static_cast<uint16_t>(high);
    if (planes == 2) fragment[plane_elements + place] = static_cast<uint16_t>(pack_bf16(value - low_bf16(high), 0.0f));
  }

  __device__ __forceinline__ void store_key(int64_t slot, int64_t head, int i, float value) const {
    const int token = static_cast<int>(slot % kCacheBlockTokens), row = token % 16, column = i % 16;
    uint16_t* step = key_block(slot / kCacheBlockTokens, head) + i / 16 * 2 * kFragment * planes;
    if (i / 16 < head_dim / 16) {
      store(step + token / 16 * kFragment * planes, kFragment, cache_place(row, column), value);
    } else {
      const int place = (row % 8 * 4 + column / 2) * 4 + row / 8 * 2 + column % 2;
      store(step + token / 16 * kHalfFragment * planes, kHalfFragment, place, value);
    }
  }
  __device__ __forceinline__ void store_value(int64_t slot, int64_t head, int i, float value) const {
    const int token = static_cast<int>(slot % kCacheBlockTokens);
    const int fragment = i / 16 * 2 + token / 16;
    store(value_block(slot / kCacheBlockTokens, head) + fragment * kFragment * planes, kFragment, cache_place(i % 16, token % 16),
          value);
  }
};

// A lane's share of a block's keys at their last step, which has eight columns; of 16 of the tokens.
template <int planes>
__device__ __forceinline__ uint4 last_key_fragment(const uint16_t* keys, int step, int half, int plane, int lane) {
  const uint16_t* from = keys + step * 2 * planes * kFragment + (half * planes + plane) * kHalfFragment;
  const uint2 v = *reinterpret_cast<const uint2*>(from + lane * 4);
  return make_uint4(v.x, 0, v.y, 0);
}

// A block's threads put one token's k and v (null where values lie in the keys) into the cache.
__device__ __forceinline__ void store_token(const CacheView& cache, int64_t slot, const float* k, const float* v,
                                            int v_head_dim) {
  for (int64_t i = threadIdx.x; i < cache.kv_heads * cache.head_dim; i += blockDim.x) {
    cache.store_key(slot, i / cache.head_dim, static_cast<int>(i % cache.head_dim), k[i]);
  }
  if (cache.values == nullptr) return;
  for (int64_t i = threadIdx.x; i < cache.kv_heads * v_head_dim; i += blockDim.x) {
    cache.store_value(slot, i / v_head_dim, static_cast<int>(i % v_head_dim), v[i]);
  }
}

}  // namespace choral_cuda
