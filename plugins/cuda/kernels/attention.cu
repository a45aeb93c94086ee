// Attention over the paged cache: scores are K·Q of mma with tokens as rows and eight (row of x, head) pairs as columns, weighted
// values Vᵀ·P, with the same columns. Keys and values come from the cache in fragments, straight into registers; q and the
// weights are two planes each, so that they count with 16 bits or more.
//
// One column's order of sums, whatever its tile has beside it: blocks of 32 positions in order with an online softmax, anew for
// each range of 256 positions; ranges are merged in order. A block of which a column sees nothing leaves it as it was.
#include <algorithm>
#include <cmath>

#include "attention_items.h"

namespace choral_cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kPromptTiles = 2;                 // of a warp, where a sequence has as many: four spill
constexpr int64_t kMostSharedBytes = 96 << 10;  // of a block: two on a multiprocessor

template <bool f16>
__device__ __forceinline__ void multiply(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  const uint32_t rows[4] = {a.x, a.y, a.z, a.w}, columns[2] = {b0, b1};
  if (f16) {
    mma_f16(c, rows, columns);
  } else {
    mma_bf16(c, rows, columns);
  }
}

template <bool f16>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  return f16 ? pack_f16(low, high) : pack_bf16(low, high);
}

// What pack lost.
template <bool f16>
__device__ __forceinline__ uint32_t pack_rest(float low, float high, uint32_t packed) {
  return f16 ? pack_f16(low - low_f16(packed), high - high_f16(packed))
             : pack_bf16(low - low_bf16(packed), high - high_bf16(packed));
}

// One warp's columns: of `tiles` tiles that follow each other and are multiplied by the same fragments of keys and values. Of C a
// lane has columns 2t and 2t + 1, of B column g.
template <bool f16, int planes, bool values_in_keys, int tiles>
class ColumnTiles {
 public:
  __device__ __forceinline__ ColumnTiles(const Attention& a, const Item& item, int64_t kv_head, int chunk, int slice,
                                         uint4* q_shared)
      : a_(a),
        sequence_(item.share.sequence),
        kv_head_(kv_head),
        chunk_(chunk),
        slice_(slice),
        lane_(threadIdx.x % kWarp),
        first_tile_(item.share.splits == 0 ? item.index * tiles : 0),
        q_(q_shared),
        v_tiles_(a.cache.v_head_dim / 16 - slice * kSliceTiles) {
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      for (int i = 0; i < 2; ++i) {
        const int column = lane_ % 4 * 2 + i;
        position_[n][i] = has(n, column) ? sequence_.context_tokens + row_in_sequence(n, column) : -1;
      }
      load_q(n);
    }
  }

  __device__ __forceinline__ bool has(int n, int column) const {
    return head_in_group(column) < a_.group && row_in_sequence(n, column) < sequence_.query_count && column < columns();
  }
  __device__ __forceinline__ int64_t row(int n, int column) const { return sequence_.query_begin + row_in_sequence(n, column); }
  __device__ __forceinline__ int64_t head(int column) const { return kv_head_ * a_.group + head_in_group(column); }
  __device__ __forceinline__ int64_t last_position() const {
    const int last = (first_tile_ + tiles) * a_.tile_rows;
    return sequence_.context_tokens + (last < sequence_.query_count ? last : sequence_.query_count) - 1;
  }
  __device__ __forceinline__ int64_t first_visible() const {
    return a_.first_visible(sequence_.context_tokens + int64_t{first_tile_} * a_.tile_rows);
  }

  // The softmax and weighted values of range `range` alone. False: the table names a block that is not there.
  __device__ __forceinline__ bool attend(int64_t range) {
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      softmax[n][0] = softmax[n][1] = {-INFINITY, 0.0f};
#pragma unroll
      for (auto& tile : values[n]) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
    }
    int64_t begin = range * kRangeBlocks, end = begin + kRangeBlocks;
    if (first_visible() / kCacheBlockTokens > begin) begin = first_visible() / kCacheBlockTokens;
    if (last_position() / kCacheBlockTokens + 1 < end) end = last_position() / kCacheBlockTokens + 1;
    const int32_t lanes_id = lane_ < end - begin ? a_.block_ids[sequence_.first_block + begin + lane_] : 0;
    if (__ballot_sync(kAllLanes, lanes_id < 0 || lanes_id >= a_.cache.blocks) != 0) {
      if (lane_ == 0) report(a_.fault, kBlockBeyond);
      return false;
    }
    for (int64_t block = begin; block < end; ++block) {
      const int64_t id = __shfl_sync(kAllLanes, lanes_id, static_cast<int>(block - begin));
      if constexpr (tiles == 1) {
        if (block + 1 < end) fetch(__shfl_sync(kAllLanes, lanes_id, static_cast<int>(block + 1 - begin)));
      }
      if (is_seen_by_all(block * kCacheBlockTokens)) {
        go_through<true>(id, block * kCacheBlockTokens);
      } else {
        go_through<false>(id, block * kCacheBlockTokens);
      }
    }
    return true;
  }

  Softmax softmax[tiles][2];
  float values[tiles][kSliceTiles][4];

 private:
  // Whether every row of the tiles sees every position of a block.
  __device__ __forceinline__ bool is_seen_by_all(int64_t first_position) const {
    const int64_t first_row = int64_t{sequence_.context_tokens} + int64_t{first_tile_} * a_.tile_rows;
    return first_position + kCacheBlockTokens <= first_row + 1 && a_.first_visible(last_position()) <= first_position;
  }

  template <bool seen_by_all>
  __device__ __forceinline__ void go_through(int64_t id, int64_t first_position) {
    ValueAhead ahead;
    if constexpr (kLoadsValuesAhead) load_values(id, ahead);
    float scores[tiles][2][4] = {};
    score(id, scores);
#pragma unroll
    for (int n = 0; n < tiles; ++n) weigh<seen_by_all>(n, first_position, scores[n]);
    add_values<seen_by_all>(id, first_position, ahead, scores);
  }

  // Where a warp has few columns it waits for memory, and its registers have room: a block's values are under way with its keys.
  static constexpr bool kLoadsValuesAhead = tiles == 1 && planes == 1 && !values_in_keys;
  using ValueAhead = uint4[kLoadsValuesAhead ? kSliceTiles : 1][2];

  __device__ __forceinline__ int columns() const { return a_.group < kColumns ? a_.tile_rows * a_.group : kColumns; }
  __device__ __forceinline__ int row_in_sequence(int n, int column) const {
    return (first_tile_ + n) * a_.tile_rows + (a_.group < kColumns ? column / a_.group : 0);
  }
  __device__ __forceinline__ int head_in_group(int column) const {
    return a_.group < kColumns ? column % a_.group : chunk_ * kColumns + column;
  }

  // Into shared memory as B fragments of both planes, each lane its own; for f16 times a power of two, so that any size fits.
  __device__ __forceinline__ void load_q(int n) {
    const int g = lane_ / 4, t = lane_ % 4, steps = ceil_div(a_.cache.head_dim, 16);
    const float* q = has(n, g) ? a_.q[row(n, g)] + head(g) * a_.cache.head_dim : nullptr;
    const auto element = [&](int step, int i) {
      const int at = step * 16 + 2 * t + i / 2 * 8 + i % 2;
      return q == nullptr || at >= a_.cache.head_dim ? 0.0f : q[at];
    };
    float power = 1.0f, inverse = 1.0f;
    if (f16) {
      uint32_t largest = 0;
      for (int i = 0; i < 4 * steps; ++i) {
        const uint32_t bits = __float_as_uint(element(i / 4, i % 4)) & 0x7f800000u;
        largest = bits > largest ? bits : largest;
      }
      for (int step = 1; step < 4; step *= 2) {
        const uint32_t other = __shfl_xor_sync(kAllLanes, largest, step);
        largest = other > largest ? other : largest;
      }
      const int exponent = static_cast<int>(largest >> 23);
      if (exponent > 20 && exponent < 240) {  // to between 2^8 and 2^9
        power = __uint_as_float(static_cast<uint32_t>(262 - exponent) << 23);
        inverse = __uint_as_float(static_cast<uint32_t>(exponent - 8) << 23);
      }
    }
    for (int i = 0; i < 2; ++i) score_scale_[n][i] = __shfl_sync(kAllLanes, inverse, lane_ % 4 * 8 + i * 4) * a_.scale;
    constexpr int kAtOnce = 8;  // all loads before the first store, which the compiler can't tell from q
    for (int first = 0; first < steps; first += kAtOnce) {
      float v[kAtOnce][4];
#pragma unroll
      for (int i = 0; i < kAtOnce * 4; ++i) v[i / 4][i % 4] = element(first + i / 4, i % 4) * power;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= steps) break;
        uint4 out;
        out.x = pack<f16>(v[i][0], v[i][1]);
        out.y = pack<f16>(v[i][2], v[i][3]);
        out.z = pack_rest<f16>(v[i][0], v[i][1], out.x);
        out.w = pack_rest<f16>(v[i][2], v[i][3], out.y);
        q_[((first + i) * tiles + n) * kWarp + lane_] = out;
      }
    }
  }

  __device__ __forceinline__ static uint4 fragment(const uint16_t* block, int index, int plane, int lane) {
    return *reinterpret_cast<const uint4*>(block + (index * planes + plane) * kFragment + lane * 8);
  }

  // last_half: of a step that has eight columns.
  template <bool last_half>
  __device__ __forceinline__ uint4 key_fragment(const uint16_t* keys, int step, int half, int plane) const {
    if (!last_half) return fragment(keys, step * 2 + half, plane, lane_);
    const uint16_t* from = keys + step * 2 * planes * kFragment + (half * planes + plane) * kHalfFragment;
    const uint2 v = *reinterpret_cast<const uint2*>(from + lane_ * 4);
    return make_uint4(v.x, v.y, 0, 0);
  }

  template <bool last_half>
  __device__ __forceinline__ void score_step(const uint16_t* keys, int step, float (&scores)[tiles][2][4]) const {
    uint4 k[2][planes];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int plane = 0; plane < planes; ++plane) k[half][plane] = key_fragment<last_half>(keys, step, half, plane);
    }
    uint4 q[tiles];
#pragma unroll
    for (int n = 0; n < tiles; ++n) q[n] = q_[(step * tiles + n) * kWarp + lane_];
      // A product that follows another to the same sums waits for it, so all others come between.
#pragma unroll
    for (int pair = 0; pair <= planes; ++pair) {
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4& key = k[half][planes == 2 && pair == 2 ? 1 : 0];
          multiply<f16>(scores[n][half], key, pair == 1 ? q[n].z : q[n].x, pair == 1 ? q[n].w : q[n].y);
        }
      }
    }
  }

  __device__ __forceinline__ void score(int64_t id, float (&scores)[tiles][2][4]) const {
    const uint16_t* keys = a_.cache.key_block(id, kv_head_);
    const int steps = a_.cache.head_dim / 16;
#pragma unroll(tiles == 1 ? 8 : 2)
    for (int step = 0; step < steps; ++step) score_step<false>(keys, step, scores);
    if (a_.cache.head_dim % 16 != 0) score_step<true>(keys, steps, scores);
  }

  // A block on its way into L2.
  __device__ __forceinline__ void fetch(int64_t id) const {
    constexpr int kLine = 64;  // elements
    const uint16_t* keys = a_.cache.key_block(id, kv_head_);
    for (int at = lane_ * kLine; at < kCacheBlockTokens * a_.cache.head_dim * planes; at += kWarp * kLine) fetch_line(keys + at);
    if (values_in_keys) return;
    const uint16_t* values = a_.cache.value_block(id, kv_head_) + slice_ * kSliceTiles * 2 * planes * kFragment;
    const int tiles_of_slice = v_tiles_ < kSliceTiles ? v_tiles_ : kSliceTiles;
    for (int at = lane_ * kLine; at < tiles_of_slice * 2 * planes * kFragment; at += kWarp * kLine) fetch_line(values + at);
  }

  // Scores of 32 positions become weights; what was summed before is measured by the new largest score.
  template <bool seen_by_all>
  __device__ __forceinline__ void weigh(int n, int64_t first_position, float (&scores)[2][4]) {
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& s = scores[i / 4][i % 4];
      const int column = i % 2;
      s *= score_scale_[n][column];
      if (a_.softcap > 0.0f) s = a_.softcap * tanhf(s / a_.softcap);
      if constexpr (!seen_by_all) {
        const int64_t position = first_position + i / 4 * 16 + i % 4 / 2 * 8 + lane_ / 4;
        if (position > position_[n][column] || position < a_.first_visible(position_[n][column])) s = -INFINITY;
      }
      most[column] = fmaxf(most[column], s);
    }
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      for (int step = 4; step < kWarp; step *= 2)
        most[column] = fmaxf(most[column], __shfl_xor_sync(kAllLanes, most[column], step));
      Softmax& so_far = softmax[n][column];
      const float now = fmaxf(so_far.most, most[column]), base = now == -INFINITY ? 0.0f : now;
      const float shrink = expf(so_far.most - base);
      float sum = 0.0f;
#pragma unroll
      for (int i = column; i < 8; i += 2) {
        float& s = scores[i / 4][i % 4];
        s = expf(s - base);
        sum += s;
      }
      for (int step = 4; step < kWarp; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
      so_far.most = now;
      so_far.sum = fmaf(so_far.sum, shrink, sum);
      if (__ballot_sync(kAllLanes, shrink != 1.0f) == 0) continue;  // no column has a larger score than before
#pragma unroll
      for (auto& tile : values[n]) {
        tile[column] *= shrink;
        tile[column + 2] *= shrink;
      }
    }
  }

  __device__ __forceinline__ uint4 value_fragment(int64_t id, int tile, int half, int plane) const {
    const int of_head = slice_ * kSliceTiles + tile;
    if (!values_in_keys) return fragment(a_.cache.value_block(id, kv_head_), of_head * 2 + half, plane, lane_);
    const uint16_t* keys = a_.cache.key_block(id, kv_head_);
    const uint4 key = of_head < a_.cache.head_dim / 16 ? key_fragment<false>(keys, of_head, half, plane)
                                                       : key_fragment<true>(keys, of_head, half, plane);
    return make_uint4(transpose_8x8(key.x), transpose_8x8(key.z), transpose_8x8(key.y), transpose_8x8(key.w));
  }

  __device__ __forceinline__ void load_values(int64_t id, ValueAhead& ahead) const {
#pragma unroll
    for (int tile = 0; tile < kSliceTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ahead[tile][half] = tile < v_tiles_ ? value_fragment(id, tile, half, 0) : make_uint4(0, 0, 0, 0);
      }
    }
  }

  template <bool seen_by_all>
  __device__ __forceinline__ void add_values(int64_t id, int64_t first_position, const ValueAhead& ahead,
                                             const float (&weights)[tiles][2][4]) {
    uint32_t high[tiles][2][2], low[tiles][2][2];  // B fragments of 16 positions each
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float a = weights[n][half][2 * i], b = weights[n][half][2 * i + 1];
          const uint32_t packed = pack<f16>(a, b);
          high[n][half][i] = transpose_8x8(packed);
          low[n][half][i] = transpose_8x8(pack_rest<f16>(a, b, packed));
        }
      }
    }
    // What lies in a block behind the sequence's last token is anybody's, and may be no number: it becomes 0.
    const int64_t left = int64_t{sequence_.context_tokens} + sequence_.query_count - first_position;
    uint32_t keep[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = i / 2 * 16 + i % 2 * 8 + lane_ % 4 * 2;
      keep[i / 2][i % 2] = (token < left ? 0xffffu : 0) | (token + 1 < left ? 0xffff0000u : 0);
    }
    constexpr int kAtOnce = 4;  // tiles, whose products stand between those to the same sums
#pragma unroll
    for (int first = 0; first < kSliceTiles; first += kAtOnce) {
      if (first >= v_tiles_) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint4 v[kAtOnce][planes];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
          for (int plane = 0; plane < planes; ++plane) {
            if constexpr (kLoadsValuesAhead) {
              v[i][plane] = ahead[first + i][half];
            } else {
              v[i][plane] = first + i < v_tiles_ ? value_fragment(id, first + i, half, plane) : make_uint4(0, 0, 0, 0);
            }
            if constexpr (!seen_by_all) {
              v[i][plane].x &= keep[half][0], v[i][plane].y &= keep[half][0];
              v[i][plane].z &= keep[half][1], v[i][plane].w &= keep[half][1];
            }
          }
        }
#pragma unroll
        for (int pair = 0; pair <= planes; ++pair) {
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
            for (int n = 0; n < tiles; ++n) {
              const auto& weight = pair == 1 ? low[n][half] : high[n][half];
              multiply<f16>(values[n][first + i], v[i][planes == 2 && pair == 2 ? 1 : 0], weight[0], weight[1]);
            }
          }
        }
      }
    }
  }

  const Attention& a_;
  const choral_sequence sequence_;
  const int64_t kv_head_;
  const int chunk_, slice_, lane_, first_tile_;
  uint4* q_;
  const int v_tiles_;
  int32_t position_[tiles][2];  // of the lane's columns of C
  float score_scale_[tiles][2];
};

// Each of the lane's results, which are of column `column` and element `at` of the slice.
template <class Body>
__device__ __forceinline__ void for_values(int v_left, Body body) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int tile = 0; tile < kSliceTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = tile * 16 + lane / 4 + i / 2 * 8;
      if (at < v_left) body(tile, i, lane % 4 * 2 + i % 2, at);
    }
  }
}

template <bool f16, int planes, bool values_in_keys, int tiles>
__global__ void __launch_bounds__(kThreads) attention_kernel(Attention a) {
  wait_for_earlier_kernels();
  const int slice = static_cast<int>(blockIdx.y) % a.slices, chunk = static_cast<int>(blockIdx.y) / a.slices % a.head_chunks;
  const int64_t kv_head = blockIdx.y / (a.slices * a.head_chunks);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  const int v_left = a.v_head_dim - slice * kSlice;
  uint4* q_shared = shared_memory<uint4>() + warp * ceil_div(a.cache.head_dim, 16) * tiles * kWarp;
  // Of ranges that were merged, each thread its own; behind all warps' q.
  auto* sums =
      reinterpret_cast<float*>(shared_memory<uint4>() + warps * ceil_div(a.cache.head_dim, 16) * tiles * kWarp) + threadIdx.x;
  const auto sum_at = [&](int n, int m, int k) -> float& { return sums[((n * kSliceTiles + m) * 4 + k) * blockDim.x]; };
  ItemWalk walk;
  Item item;
  for (int64_t i = int64_t{blockIdx.x} * warps + warp; walk.find(a, i, &item); i += int64_t{gridDim.x} * warps) {
    ColumnTiles<f16, planes, values_in_keys, tiles> columns(a, item, kv_head, chunk, slice, q_shared);
    if (item.share.splits > 0) {  // all of it in the first tile
      if (item.split >= a.part_capacity) {
        if (lane == 0) report(a.fault, kBlockBeyond);
        continue;
      }
      if (!columns.attend(item.share.first_range + item.index)) continue;
      float* parts = a.parts + (item.split * gridDim.y + blockIdx.y) * kColumns * kPartFloats;
      for (int column = 0; column < 2 && lane / 4 == 0; ++column) {
        float* part = parts + (lane % 4 * 2 + column) * kPartFloats;
        part[0] = columns.softmax[0][column].most, part[1] = columns.softmax[0][column].sum;
      }
      for_values(v_left,
                 [&](int m, int i4, int column, int at) { parts[column * kPartFloats + 2 + at] = columns.values[0][m][i4]; });
      continue;
    }
    Softmax total[tiles][2];
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      for (int column = 0; column < 2; ++column) {
        const int mine = lane % 4 * 2 + column;
        total[n][column] = columns.has(n, mine) ? sink_or_nothing(a.sinks, columns.head(mine)) : Softmax{-INFINITY, 0.0f};
      }
#pragma unroll
      for (int m = 0; m < kSliceTiles; ++m) {
#pragma unroll
        for (int k = 0; k < 4; ++k) sum_at(n, m, k) = 0.0f;
      }
    }
    bool whole = true;
    for (int64_t range = columns.first_visible() / kRangeTokens; whole && range <= columns.last_position() / kRangeTokens;
         ++range) {
      whole = columns.attend(range);
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        const Factors factors[2] = {merge(&total[n][0], columns.softmax[n][0]), merge(&total[n][1], columns.softmax[n][1])};
#pragma unroll
        for (int m = 0; m < kSliceTiles; ++m) {
#pragma unroll
          for (int k = 0; k < 4; ++k) sum_at(n, m, k) = merge_value(sum_at(n, m, k), columns.values[n][m][k], factors[k % 2]);
        }
      }
    }
    if (!whole) continue;
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      for_values(v_left, [&](int m, int i4, int column, int at) {
        if (!columns.has(n, column)) return;
        a.out[columns.row(n, column)][columns.head(column) * a.v_head_dim + slice * kSlice + at] =
            sum_at(n, m, i4) / total[n][i4 % 2].sum;
      });
    }
  }
}

// The ranges of sequences of one tile, in order. A thread has an element of the slice.
__global__ void __launch_bounds__(kSlice) combine_kernel(Attention a) {
  wait_for_earlier_kernels();
  const int64_t index = blockIdx.x;
  int32_t splits = 0;  // of the sequences before
  for (int64_t i = threadIdx.x % kWarp; i < index; i += kWarp) splits += Share::of(a, i).splits;
  for (int step = kWarp / 2; step > 0; step /= 2) splits += __shfl_xor_sync(kAllLanes, splits, step);
  const Share share = Share::of(a, index);
  if (splits + share.splits > a.part_capacity) return;
  const int slice = static_cast<int>(blockIdx.y) % a.slices, chunk = static_cast<int>(blockIdx.y) / a.slices % a.head_chunks;
  const int64_t kv_head = blockIdx.y / (a.slices * a.head_chunks);
  const int at = static_cast<int>(threadIdx.x), v_left = a.v_head_dim - slice * kSlice;
  if (share.splits == 0 || at >= v_left) return;
  for (int column = 0; column < kColumns; ++column) {
    const int row = a.group < kColumns ? column / a.group : 0;
    const int head_in_group = a.group < kColumns ? column % a.group : chunk * kColumns + column;
    if (row >= share.sequence.query_count || row >= a.tile_rows || head_in_group >= a.group) continue;
    const int64_t head = kv_head * a.group + head_in_group;
    Softmax total = sink_or_nothing(a.sinks, head);
    float sum = 0.0f;
    for (int range = 0; range < share.splits; ++range) {
      const float* part =
          a.parts + ((int64_t{splits} + range) * gridDim.y + blockIdx.y) * kColumns * kPartFloats + column * kPartFloats;
      sum = merge_value(sum, part[2 + at], merge(&total, {part[0], part[1]}));
    }
    a.out[share.sequence.query_begin + row][head * a.v_head_dim + slice * kSlice + at] = sum / total.sum;
  }
}

using AttentionKernel = void(Attention);

template <int tiles>
AttentionKernel* kernel_for(const choral_kv_cache& cache) {
  const bool in_keys = cache.values == nullptr;
  if (cache.dtype == CHORAL_F16)
    return in_keys ? attention_kernel<true, 1, true, tiles> : attention_kernel<true, 1, false, tiles>;
  if (cache.dtype == CHORAL_BF16)
    return in_keys ? attention_kernel<false, 1, true, tiles> : attention_kernel<false, 1, false, tiles>;
  return in_keys ? attention_kernel<false, 2, true, tiles> : attention_kernel<false, 2, false, tiles>;
}

// A warp's q and sums.
int64_t warp_bytes(const choral_attention_args& args, int64_t tiles) {
  const int64_t q = ceil_div<int64_t>(args.cache.head_dim, 16) * kWarp * int64_t{sizeof(uint4)};
  return tiles * (q + kSliceTiles * 4 * kWarp * int64_t{sizeof(float)});
}

template <int tiles>
cudaError_t launch_tiles(const Launch& launch, const choral_attention_args& args, int64_t warps) {
  const Attention a(launch, args, tiles);
  const int64_t blocks = ceil_div<int64_t>(a.most_items(), warps), most = int64_t{1} << 16;
  const GridShape shape{dim3(static_cast<unsigned>(blocks < most ? blocks : most), static_cast<unsigned>(a.grid_y())),
                        dim3(static_cast<unsigned>(warps * kWarp)), static_cast<size_t>(warps * warp_bytes(args, tiles))};
  return launch_kernel(kernel_for<tiles>(args.cache), shape, launch, a);
}

}  // namespace

size_t paged_attention_scratch_bytes(const choral_attention_args& args) {
  const Attention a(Launch{}, args, 1);
  return static_cast<size_t>(a.part_capacity * a.grid_y()) * kColumns * kPartFloats * sizeof(float);
}

cudaError_t paged_attention(const Launch& launch, const choral_attention_args& args) {
  if (args.q.rows == 0 || args.sequence_count == 0) return cudaSuccess;
  const Attention a(launch, args, 1);
  // Who has more than a tile of rows, a prompt, shares what it reads among several; where heads are large, fewer warps do.
  const bool is_prompt = args.q.rows > args.sequence_count * a.tile_rows;
  const int64_t tiles = is_prompt && warp_bytes(args, kPromptTiles) <= kMostSharedBytes ? kPromptTiles : 1;
  const int64_t warps = std::clamp<int64_t>(kMostSharedBytes / warp_bytes(args, tiles), 1, kWarps);
  const cudaError_t error = tiles == 1 ? launch_tiles<1>(launch, args, warps) : launch_tiles<kPromptTiles>(launch, args, warps);
  if (error != cudaSuccess) return error;
  return launch_kernel(combine_kernel,
                       {dim3(static_cast<unsigned>(args.sequence_count), static_cast<unsigned>(a.grid_y())), dim3(kSlice)},
                       launch, a);
}

}  // namespace choral_cuda
