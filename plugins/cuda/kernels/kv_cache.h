// The paged cache in this plug-in's own order: what a block of 32 tokens has of a head lies in core matrices of 8 rows by 16
// bytes (wgmma.h), four of which are a fragment of 16 rows by 16 columns: those of rows 0 to 7 are B's two registers, the others
// the next eight rows'. So a warp loads a fragment by one instruction, and a warpgroup's products read it where it lies.
//   keys   [block][kv_head][k16 of the head][plane][16 tokens, twice]: rows are tokens
//            a last half k16 has half a fragment, one core matrix of eight rows and one of the next
//   values [block][kv_head][128 of the head][16 tokens, twice][plane][m16 of the 128]: rows are the head's elements
// An f32 cache has two bf16 planes, high and low: 16 bits of each number.
#pragma once

#include "choral/plugin.h"
#include "element_place.h"
#include "launch.h"
#include "ptx.h"

namespace choral_cuda {

inline constexpr int kCacheBlockTokens = 32;
inline constexpr int kFragment = 256, kHalfFragment = 128, kCore = 64;  // elements of 16x16, 16x8 and 8x8
inline constexpr int kSliceTiles = 8, kSlice = 16 * kSliceTiles;        // of a value, that a warp computes

__device__ __forceinline__ int min_of(int a, int b) { return a < b ? a : b; }

CHORAL_ANYWHERE int cache_place(int row, int column) { return (row / 8 * 2 + column / 8) * kCore + row % 8 * 8 + column % 8; }

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
      store(step + token / 16 * kFragment, 2 * kFragment, cache_place(row, column), value);
    } else {
      store(step + token / 16 * kHalfFragment, 2 * kHalfFragment, row / 8 * kCore + row % 8 * 8 + column, value);
    }
  }
  __device__ __forceinline__ void store_value(int64_t slot, int64_t head, int i, float value) const {
    const int token = static_cast<int>(slot % kCacheBlockTokens);
    const int slice = i / kSlice, tiles = min_of(v_head_dim / 16 - slice * kSliceTiles, kSliceTiles);
    uint16_t* half =
        value_block(slot / kCacheBlockTokens, head) + (slice * kSliceTiles * 2 + token / 16 * tiles) * kFragment * planes;
    store(half + i % kSlice / 16 * kFragment, tiles * kFragment, cache_place(i % 16, token % 16), value);
  }
};

// What a kernel knows of its cache: its type, where values lie, and the length of keys and of values, 64 or 128; 0: any.
template <bool f16_, int planes_, bool values_in_keys_, int head_>
struct CacheForm {
  static constexpr bool f16 = f16_, values_in_keys = values_in_keys_;
  static constexpr int planes = planes_, head = head_;
};

// Of a block of the cache in shared memory, by all threads: what lies behind a sequence's last token, of which the block has
// `last`, is anybody's, and may be no number. rows: `count` rows of core matrices, of values or of the keys that values are.
template <class Form>
__device__ __forceinline__ void forget_values(uint4* rows, int head_dim, int count, int last) {
  const auto keep = [&](int token) { return token < last ? 0xffffffffu : 0u; };
  const auto keep_two = [&](int token) { return (token < last ? 0xffffu : 0u) | (token + 1 < last ? 0xffff0000u : 0u); };
  for (int at = static_cast<int>(threadIdx.x); at < count; at += static_cast<int>(blockDim.x)) {
    const uint4 v = rows[at];
    if constexpr (Form::values_in_keys) {  // a row is a token's; the last fragments of keys may be half ones
      const int whole = head_dim / 16 * 2 * Form::planes * kFragment / 8;
      const int half = at < whole ? at / 32 % 2 : (at - whole) / 16 % 2;
      const uint32_t mask = keep(half * 16 + (at < whole ? at / 16 : at / 8) % 2 * 8 + at % 8);
      rows[at] = make_uint4(v.x & mask, v.y & mask, v.z & mask, v.w & mask);
    } else {  // a row is an element's, of eight tokens
      const int token = at / (count / 2) * 16 + at / 8 % 2 * 8;
      rows[at] =
          make_uint4(v.x & keep_two(token), v.y & keep_two(token + 2), v.z & keep_two(token + 4), v.w & keep_two(token + 6));
    }
  }
}

// A lane's share of a block's keys at their last step, which has eight columns; of 16 of the tokens.
template <int planes>
__device__ __forceinline__ uint4 last_key_fragment(const uint16_t* keys, int step, int half, int plane, int lane) {
  const uint16_t* from = keys + step * 2 * planes * kFragment + (plane * 2 + half) * kHalfFragment;
  const uint4 v = load_matrices(from + lane % 16 * 8);  // those of the other lanes are not asked for
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
