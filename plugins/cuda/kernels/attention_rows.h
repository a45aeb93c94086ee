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
inline constexpr int kScoreTiles = kCacheBlockTokens / 8;  // of eight columns of C

// A fragment of the cache as B: its first eight rows, or the others.
__device__ __forceinline__ uint32_t b0(const uint4& v, int upper) { return upper == 0 ? v.x : v.z; }
__device__ __forceinline__ uint32_t b1(const uint4& v, int upper) { return upper == 0 ? v.y : v.w; }

// Elements of q in shared memory: of `warps` warps together, A's core matrices of a step and a plane.
template <int warps>
__host__ __device__ constexpr int q_elements(int head_dim) {
  return ceil_div(head_dim, 16) * 2 * warps * kFragment;
}

// One warp's sixteen rows, of two tiles. Of A and C a lane has rows g and g + 8: column g of each tile. q_warps: 1, or 4 where a
// warpgroup multiplies together, whose q lies in one piece.
template <class Form, int q_warps>
class AttentionRows {
  static constexpr bool f16 = Form::f16;
  static constexpr int planes = Form::planes, head = Form::head;
  using Pairs = CachePairs<f16>;

 public:
  __device__ __forceinline__ AttentionRows(const Attention& a, const BlockItem& item, const HeadPart& part, uint16_t* q_shared)
      : a_(a),
        sequence_(item.sequence),
        part_(part),
        lane_(threadIdx.x % kWarp),
        tile_(item.first_tile + static_cast<int>(threadIdx.x) / kWarp * kTilesOfWarp),
        q_(q_shared + static_cast<int>(threadIdx.x) / kWarp % q_warps * kFragment),
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
    Scores scores = {};
    score(keys, scores);
    weigh<true>(block, scores);
    add_values(values, scores);
  }

  // The same by a warpgroup, keys and values at addresses in shared memory, in two steps. Behind begin(), which waits for all
  // groups of products, earlier blocks are done with; this block's values are a group that runs on.
  __device__ __forceinline__ void begin(uint32_t q, uint32_t keys) {
    clear(scores_);
    hold_all(scores_);
    start_group();
#pragma unroll
    for (int step = 0; step < head / 16; ++step) {
#pragma unroll
      for (int pair = 0; pair <= planes; ++pair) {
        const uint32_t rows = q + (step * 2 + (pair == 1 ? 1 : 0)) * q_warps * kFragmentBytes;
        const uint32_t columns = keys + (step * planes + (pair == 2 ? 1 : 0)) * 2 * kFragmentBytes;
        Pairs::start(scores_, core_matrices(rows, kCoreBytes, 2 * kCoreBytes),
                     core_matrices(columns, kCoreBytes, 2 * kCoreBytes));
      }
    }
    end_group();
    wait_groups<0>();
    hold_all(scores_);
    hold_all(values_);
  }
  __device__ __forceinline__ void go_on(int64_t block, uint32_t values) {
    weigh<false>(block, scores_);
    uint32_t high[2][4], low[2][4];
    pack_weights(scores_, high, low);
#pragma unroll
    for (int i = 0; i < 8; ++i) hold(high[i / 4][i % 4]), hold(low[i / 4][i % 4]);
    hold_all(values_);
    start_group();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int pair = 0; pair <= planes; ++pair) {
        const uint32_t columns = values + (half * planes + (pair == 2 ? 1 : 0)) * kTiles * kFragmentBytes;
        Pairs::start(values_, pair == 1 ? low[half] : high[half], core_matrices(columns, kCoreBytes, 2 * kCoreBytes));
      }
    }
    end_group();
  }
  // Behind a wait for all groups.
  __device__ __forceinline__ void end_products() { hold_all(values_); }

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
  static constexpr int kFragmentBytes = kFragment * sizeof(uint16_t);
  using Values = float[kValueTiles][4];
  using Scores = float[kScoreTiles][4];

  template <int tiles>
  static __device__ __forceinline__ void clear(float (&sums)[tiles][4]) {
#pragma unroll
    for (auto& tile : sums) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
  }
  template <int tiles>
  static __device__ __forceinline__ void hold_all(float (&sums)[tiles][4]) {
#pragma unroll
    for (auto& tile : sums) hold(tile[0]), hold(tile[1]), hold(tile[2]), hold(tile[3]);
  }
  // Whether row g (i = 0) or g + 8 (1) is there.
  __device__ __forceinline__ bool has(int i) const { return a_.has(sequence_, tile_ + i, part_.chunk, lane_ / 4); }

  // Into shared memory as A's core matrices, of both planes: [step][plane][warp][row g or g + 8][k, or 8 further].
  __device__ __forceinline__ void load_q() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t row = sequence_.query_begin + a_.row_of(tile_ + i, lane_ / 4);
      const QueryRow q{has(i) ? a_.q[row] + part_.head(a_, lane_ / 4) * a_.cache.head_dim : nullptr, a_.cache.head_dim};
      const QueryRow::Power power = f16 ? q.power_of_f16() : QueryRow::Power{1.0f, 1.0f};
      score_scale_[i] = power.inverse * a_.scale;
      auto* words = reinterpret_cast<uint32_t*>(q_ + i * 2 * kCore) + lane_;
      q.for_steps<f16>(power.power, [&](int step, uint32_t high, uint32_t high_8, uint32_t low, uint32_t low_8) {
        constexpr int kPlane = q_warps * kFragment / 2, kNext = kCore / 2;
        uint32_t* of_step = words + step * 2 * kPlane;
        of_step[0] = high, of_step[kNext] = high_8;
        of_step[kPlane] = low, of_step[kPlane + kNext] = low_8;
      });
    }
  }

  __device__ __forceinline__ uint4 key_fragment(const uint16_t* keys, int step, int half, int plane) const {
    return load_matrices(keys + ((step * planes + plane) * 2 + half) * kFragment + lane_ * 8);
  }

  template <bool last_half>
  __device__ __forceinline__ void score_step(const uint16_t* keys, int step, float (&scores)[kScoreTiles][4]) const {
    uint4 k[2][planes];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int plane = 0; plane < planes; ++plane) {
        k[half][plane] =
            last_half ? last_key_fragment<planes>(keys, step, half, plane, lane_) : key_fragment(keys, step, half, plane);
      }
    }
    const uint16_t* row = q_ + (lane_ / 8 % 2 * 2 + lane_ / 16) * kCore + lane_ % 8 * 8;
    const uint4 high = load_matrices(row + step * 2 * q_warps * kFragment);
    const uint4 low = load_matrices(row + (step * 2 + 1) * q_warps * kFragment);
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
  __device__ __forceinline__ void conceal(int64_t first, float (&scores)[kScoreTiles][4]) const {
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

  // Sums of products become scores and these weights, behind the end of a range where the block begins the next one.
  template <bool may_be_capped>
  __device__ __forceinline__ void weigh(int64_t block, Scores& scores) {
    const int range = static_cast<int>(block / kRangeBlocks);
    const int64_t first = block * kCacheBlockTokens;
    if (range != range_) {
      end_range();
      range_ = range;
      softmax_[0] = softmax_[1] = {-INFINITY, 0.0f};
      clear(values_);
    }
    scale_scores(scores, score_scale_);
    if constexpr (may_be_capped) cap_scores(a_, scores);
    const bool all_see_all = first + kCacheBlockTokens <= first_position_ + 1 && a_.first_visible(last_position_) <= first;
    if (!all_see_all) conceal(first, scores);
    weigh_row(0, scores);
    if ((tile_ + 1) * a_.tile_rows < sequence_.query_count) weigh_row(1, scores);  // where there is a second tile
  }

  // The lane's scores of row g + 8i become weights; what was summed before is measured by the new largest score.
  __device__ __forceinline__ void weigh_row(int i, Scores& scores) {
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
    if constexpr (!Form::values_in_keys) {
      const int tiles = head == 0 ? v_tiles_ : kTiles;
      return load_matrices(values + ((half * planes + plane) * tiles + tile) * kFragment + lane_ * 8);
    }
    // Keys turned over, eight tokens by eight elements at a time.
    const int step = part_.slice * kSliceTiles + tile;
    const uint4 key = step < a_.cache.head_dim / 16 ? key_fragment(values, step, half, plane)
                                                    : last_key_fragment<planes>(values, step, half, plane, lane_);
    return make_uint4(transpose_8x8(key.x), transpose_8x8(key.z), transpose_8x8(key.y), transpose_8x8(key.w));
  }

  // As A fragments of 16 positions each.
  static __device__ __forceinline__ void pack_weights(const Scores& weights, uint32_t (&high)[2][4], uint32_t (&low)[2][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {  // register r: row g + 8 (r % 2), positions from 8 (r / 2) on
        const float* pair = weights[half * 2 + r / 2] + r % 2 * 2;
        high[half][r] = Pairs::pack(pair[0], pair[1]);
        low[half][r] = Pairs::pack_rest(pair[0], pair[1], high[half][r]);
      }
    }
  }

  __device__ __forceinline__ void add_values(const uint16_t* values, const Scores& weights) {
    uint32_t high[2][4], low[2][4];
    pack_weights(weights, high, low);
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
  uint16_t* q_;
  const int v_tiles_;
  int32_t first_position_, last_position_;
  int range_ = -1;
  int32_t position_[2];  // of rows g and g + 8
  float score_scale_[2];
  Softmax softmax_[2], total_[2];  // of this range, of those before
  Values values_, total_values_;
  Scores scores_;  // a warpgroup's
};

}  // namespace choral_cuda
