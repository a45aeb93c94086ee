// The arithmetic of attention: scores are Q·Kᵀ of mma with sixteen (row of x, head) pairs of a warp as rows and tokens as
// columns, so that C of the scores is A of the weighted values P·V as it lies in registers.
//
// The order of a row's sums, whatever shares its warp and whichever block goes through its positions: blocks of 32 positions in
// order with an online softmax, anew for each range of 128 positions; ranges are merged in order. Of a block, weights are added
// that lie eight positions apart, then in pairs, fours and all eight. A block of which a row sees nothing leaves its sums as they
// were. Scores are in units of log2, so that a weight is one power of two.
//
// q and the softmax's weights are two planes each, high and low; of keys and values f32 has two. A step's products: high with
// high, keys' or values' high with the other's low, low with high.
#pragma once

#include "attention_arithmetic.h"

namespace choral_cuda {

inline constexpr int kTilesOfWarp = 2;
__device__ __forceinline__ int min_of(int a, int b) { return a < b ? a : b; }
inline constexpr int kScoreTiles = kCacheBlockTokens / 8;  // of eight columns of C

// A fragment of the cache as B: its first eight rows, or the others.
__device__ __forceinline__ uint32_t b0(const uint4& v, int upper) { return upper == 0 ? v.x : v.z; }
__device__ __forceinline__ uint32_t b1(const uint4& v, int upper) { return upper == 0 ? v.y : v.w; }

// What a block of threads works on: rows of one sequence by one kv head, and the blocks of the cache that they see, or those of
// one range.
struct BlockItem {
  choral_sequence sequence;
  int first_tile;
  bool is_split;
  int64_t split;
  int64_t begin, end;  // blocks of the cache

  __device__ __forceinline__ BlockItem(const Attention& a, const Item& item)
      : sequence(item.share.sequence),
        // The last rows see most: they begin.
        first_tile(item.share.splits > 0 ? 0 : (item.share.items - 1 - item.index) * (a.item_rows / a.tile_rows)),
        is_split(item.share.splits > 0),
        split(item.split) {
    const int first_row = first_tile * a.tile_rows, rows = min_of(a.item_rows, sequence.query_count - first_row);
    const int64_t first = int64_t{sequence.context_tokens} + first_row;
    begin = a.first_visible(first) / kCacheBlockTokens;
    end = (first + rows - 1) / kCacheBlockTokens + 1;
    if (!is_split) return;
    const int64_t range_begin = int64_t{item.share.first_range + item.index} * kRangeBlocks;
    begin = begin > range_begin ? begin : range_begin;
    end = end < range_begin + kRangeBlocks ? end : range_begin + kRangeBlocks;
  }
  __device__ __forceinline__ int64_t tokens() const { return int64_t{sequence.context_tokens} + sequence.query_count; }
};

// What a kernel knows of its cache: its type, where values lie, and the length of keys and of values, 64 or 128; 0: any.
template <bool f16_, int planes_, bool values_in_keys_, int head_>
struct CacheForm {
  static constexpr bool f16 = f16_, values_in_keys = values_in_keys_;
  static constexpr int planes = planes_, head = head_;
};

// One warp's sixteen rows, of two tiles. Of A and C a lane has rows g and g + 8: column g of each tile.
template <class Form>
class AttentionRows {
  static constexpr bool f16 = Form::f16;
  static constexpr int planes = Form::planes, head = Form::head;
  using Pairs = CachePairs<f16>;

 public:
  __device__ __forceinline__ AttentionRows(const Attention& a, const BlockItem& item, const HeadPart& part, uint4* q_shared)
      : a_(a),
        sequence_(item.sequence),
        part_(part),
        lane_(threadIdx.x % kWarp),
        tile_(item.first_tile + static_cast<int>(threadIdx.x) / kWarp * kTilesOfWarp),
        q_(q_shared),
        v_tiles_(min_of(a.cache.v_head_dim / 16 - part.slice * kSliceTiles, kSliceTiles)) {
    const int first = tile_ * a.tile_rows, last = first + kTilesOfWarp * a.tile_rows;
    first_position_ = sequence_.context_tokens + first;
    last_position_ = sequence_.context_tokens + min_of(last, sequence_.query_count) - 1;
    load_q();
    for (int i = 0; i < 2; ++i) {
      position_[i] = has(i) ? sequence_.context_tokens + a.row_of(tile_ + i, lane_ / 4) : -1;
      total_[i] = has(i) ? sink_or_nothing(a.sinks, part.head(a, lane_ / 4)) : Softmax{-INFINITY, 0.0f};
    }
    clear(total_values_);
  }

  __device__ __forceinline__ bool sees(int64_t block) const {
    return first_position_ <= last_position_ && block * kCacheBlockTokens <= last_position_ &&
           block >= a_.first_visible(first_position_) / kCacheBlockTokens;
  }

  // Blocks of the cache in order, of those that it sees.
  __device__ __forceinline__ void go_through(int64_t block, const uint16_t* keys, const uint16_t* values) {
    const int range = static_cast<int>(block / kRangeBlocks);
    const int64_t first = block * kCacheBlockTokens;
    if (range != range_) {
      end_range();
      range_ = range;
      softmax_[0] = softmax_[1] = {-INFINITY, 0.0f};
      clear(values_);
    }
    float scores[kScoreTiles][4] = {};
    score(keys, scores);
    scale_scores(a_, scores, score_scale_);
    const bool all_see_all = first + kCacheBlockTokens <= first_position_ + 1 && a_.first_visible(last_position_) <= first;
    if (!all_see_all) hide(first, scores);
    weigh(0, scores);
    if ((tile_ + 1) * a_.tile_rows < sequence_.query_count) weigh(1, scores);  // where there is a second tile
    add_values(values, scores);
  }

  // The rows' results.
  __device__ __forceinline__ void finish() {
    end_range();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!has(i)) continue;
      float* out = a_.out[sequence_.query_begin + a_.row_of(tile_ + i, lane_ / 4)] + part_.head(a_, lane_ / 4) * a_.v_head_dim +
                   part_.slice * kSlice;
      const int left = a_.v_head_dim - part_.slice * kSlice;
      const float inverse = 1.0f / total_[i].sum;
#pragma unroll
      for (int m = 0; m < kValueTiles; ++m) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int at = m * 8 + lane_ % 4 * 2 + k;
          if (at < left) out[at] = total_values_[m][2 * i + k] * inverse;
        }
      }
    }
  }
  // Those of the first tile and of the one range that it went through, each column's kPartFloats: they are merged with others.
  __device__ __forceinline__ void store_range(float* parts) const {
    float* part = parts + lane_ / 4 * kPartFloats;
    if (lane_ % 4 == 0) part[0] = softmax_[0].most, part[1] = softmax_[0].sum;
#pragma unroll
    for (int m = 0; m < kValueTiles; ++m) {
#pragma unroll
      for (int k = 0; k < 2; ++k) part[2 + m * 8 + lane_ % 4 * 2 + k] = values_[m][k];
    }
  }

 private:
  static constexpr int kTiles = head == 0 ? kSliceTiles : head / 16;  // of values; those that are not there are zeros
  static constexpr int kValueTiles = 2 * kTiles;
  using Values = float[kValueTiles][4];

  static __device__ __forceinline__ void clear(Values& values) {
#pragma unroll
    for (auto& tile : values) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
  }
  // Whether row g (i = 0) or g + 8 (1) is there.
  __device__ __forceinline__ bool has(int i) const { return a_.has(sequence_, tile_ + i, part_.chunk, lane_ / 4); }

  // Into shared memory as A fragments of both planes, each lane its own.
  __device__ __forceinline__ void load_q() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t row = sequence_.query_begin + a_.row_of(tile_ + i, lane_ / 4);
      const QueryRow q{has(i) ? a_.q[row] + part_.head(a_, lane_ / 4) * a_.cache.head_dim : nullptr, a_.cache.head_dim};
      const QueryRow::Power power = f16 ? q.power_of_f16() : QueryRow::Power{1.0f, 1.0f};
      score_scale_[i] = power.inverse * a_.scale;
      auto* words = reinterpret_cast<uint32_t*>(q_ + lane_);
      q.for_steps<f16>(power.power, [&](int step, uint32_t high, uint32_t high_8, uint32_t low, uint32_t low_8) {
        uint32_t* of_step = words + step * 2 * kWarp * 4;
        of_step[i] = high, of_step[2 + i] = high_8;
        of_step[kWarp * 4 + i] = low, of_step[kWarp * 4 + 2 + i] = low_8;
      });
    }
  }

  static __device__ __forceinline__ uint4 fragment(const uint16_t* block, int index, int plane, int lane) {
    return *reinterpret_cast<const uint4*>(block + (index * planes + plane) * kFragment + lane * 8);
  }

  template <bool last_half>
  __device__ __forceinline__ void score_step(const uint16_t* keys, int step, float (&scores)[kScoreTiles][4]) const {
    uint4 k[2][planes];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int plane = 0; plane < planes; ++plane) {
        k[half][plane] =
            last_half ? last_key_fragment<planes>(keys, step, half, plane, lane_) : fragment(keys, step * 2 + half, plane, lane_);
      }
    }
    const uint4 high = q_[step * 2 * kWarp + lane_], low = q_[(step * 2 + 1) * kWarp + lane_];
#pragma unroll
    for (int pair = 0; pair <= planes; ++pair) {
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
        const uint4& key = k[n / 2][pair == 2 ? planes - 1 : 0];
        Pairs::multiply(scores[n], pair == 1 ? low : high, b0(key, n % 2), b1(key, n % 2));
      }
    }
  }

  __device__ __forceinline__ void score(const uint16_t* keys, float (&scores)[kScoreTiles][4]) const {
    if constexpr (head != 0) {
#pragma unroll
      for (int step = 0; step < head / 16; ++step) score_step<false>(keys, step, scores);
    } else {
      const int steps = a_.cache.head_dim / 16;
#pragma unroll 4
      for (int step = 0; step < steps; ++step) score_step<false>(keys, step, scores);
      if (a_.cache.head_dim % 16 != 0) score_step<true>(keys, steps, scores);
    }
  }

  // Positions from `first` on that a row does not see.
  __device__ __forceinline__ void hide(int64_t first, float (&scores)[kScoreTiles][4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t first_visible = a_.first_visible(position_[i]);
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int64_t position = first + n * 8 + lane_ % 4 * 2 + k;
          if (position > position_[i] || position < first_visible) scores[n][2 * i + k] = -INFINITY;
        }
      }
    }
  }

  // The lane's scores of row g + 8i become weights; what was summed before is measured by the new largest score.
  __device__ __forceinline__ void weigh(int i, float (&scores)[kScoreTiles][4]) {
    float most = -INFINITY;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) most = fmaxf(most, fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
    for (int step = 1; step < 4; step *= 2) most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
    const float shrink = softmax_[i].raise(most), base = softmax_[i].base();
    float sums[2] = {0.0f, 0.0f};
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float& s = scores[n][2 * i + k];
        s = power_of_2(s - base);
        sums[k] += s;
      }
    }
    float sum = sums[0] + sums[1];
    for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    softmax_[i].add(shrink, sum);
    if (__ballot_sync(kAllLanes, shrink != 1.0f) == 0) return;  // no row has a larger score than before
#pragma unroll
    for (auto& tile : values_) {
      tile[2 * i] *= shrink;
      tile[2 * i + 1] *= shrink;
    }
  }

  __device__ __forceinline__ uint4 value_fragment(const uint16_t* values, int tile, int half, int plane) const {
    if (head == 0 && tile >= v_tiles_) return make_uint4(0, 0, 0, 0);
    if constexpr (!Form::values_in_keys) return fragment(values, tile * 2 + half, plane, lane_);
    // Keys turned over, eight tokens by eight elements at a time.
    const int step = part_.slice * kSliceTiles + tile;
    const uint4 key = step < a_.cache.head_dim / 16 ? fragment(values, step * 2 + half, plane, lane_)
                                                    : last_key_fragment<planes>(values, step, half, plane, lane_);
    return make_uint4(transpose_8x8(key.x), transpose_8x8(key.z), transpose_8x8(key.y), transpose_8x8(key.w));
  }

  __device__ __forceinline__ void add_values(const uint16_t* values, const float (&weights)[kScoreTiles][4]) {
    uint4 high[2], low[2];  // A fragments of 16 positions each
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t packed[4], rest[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {  // register r: row g + 8 (r % 2), positions from 8 (r / 2) on
        const float* pair = weights[half * 2 + r / 2] + r % 2 * 2;
        packed[r] = Pairs::pack(pair[0], pair[1]);
        rest[r] = Pairs::pack_rest(pair[0], pair[1], packed[r]);
      }
      high[half] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
      low[half] = make_uint4(rest[0], rest[1], rest[2], rest[3]);
    }
    constexpr int kAtOnce = 2;  // of 16 elements, whose products stand between those to the same sums
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += kAtOnce) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint4 v[kAtOnce][planes];
#pragma unroll
        for (int m = 0; m < kAtOnce; ++m) {
#pragma unroll
          for (int plane = 0; plane < planes; ++plane) {
            v[m][plane] = value_fragment(values, tile + m, half, plane);
          }
        }
#pragma unroll
        for (int pair = 0; pair <= planes; ++pair) {
#pragma unroll
          for (int n = 0; n < 2 * kAtOnce; ++n) {
            const uint4& value = v[n / 2][pair == 2 ? planes - 1 : 0];
            Pairs::multiply(values_[tile * 2 + n], pair == 1 ? low[half] : high[half], b0(value, n % 2), b1(value, n % 2));
          }
        }
      }
    }
  }

  __device__ __forceinline__ void end_range() {
    if (range_ < 0) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Factors factors = merge(&total_[i], softmax_[i]);
#pragma unroll
      for (int m = 0; m < kValueTiles; ++m) {
#pragma unroll
        for (int k = 2 * i; k < 2 * i + 2; ++k) total_values_[m][k] = merge_value(total_values_[m][k], values_[m][k], factors);
      }
    }
  }

  const Attention& a_;
  const choral_sequence sequence_;
  const HeadPart part_;
  const int lane_, tile_;
  uint4* q_;
  const int v_tiles_;
  int32_t first_position_, last_position_;
  int range_ = -1;
  int32_t position_[2];  // of rows g and g + 8
  float score_scale_[2];
  Softmax softmax_[2], total_[2];  // of this range, of those before
  Values values_, total_values_;
};

}  // namespace choral_cuda
