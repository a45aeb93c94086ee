#include "kernels/attention/attention_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/activation/activation_math_inl.h"
#include "kernels/attention/attention_micro_inl.h"
#include "kernels/attention/kv_block_inl.h"

#ifndef CHORAL_ATTENTION_SCRATCH
#define CHORAL_ATTENTION_SCRATCH
namespace choral::kernels {
// Scratch of one thread, in this order; every part is a multiple of 16 floats.
struct AttentionScratch {
  float* q;             // packed queries: for each register tile [head_dim][rows of it]
  float* keys;          // a key block as float [head_dim][32]
  float* values;        // a value block as float [32][turned_value_stride()]
  float* scores;        // [16][32], of one register tile
  float* lane_sums;     // [rows][16]: l before its lanes are added up
  float* range_state;   // the range being worked on
  float* merged_state;  // the ranges before it

  AttentionScratch(float* base, int64_t head_dim, int64_t v_head_dim) {
    q = base;
    keys = q + kMaxTileRows * head_dim;
    values = keys + kKvBlockTokens * head_dim;
    scores = values + kKvBlockTokens * turned_value_stride(v_head_dim);
    lane_sums = scores + 16 * kKvBlockTokens;
    range_state = lane_sums + kMaxTileRows * 16;
    merged_state = range_state + attention_state_floats(kMaxTileRows, v_head_dim);
  }
};
}  // namespace choral::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kRowVectors = kBlock / kLanes;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Acc, m and l of a state.
struct State {
  float *acc, *m, *l;
  State(const AttentionTile& tile, float* base)
      : acc(base), m(base + tile.rows() * kv_value_stride(tile.cache->v_head_dim)), l(m + tile.rows()) {}
};

// The keys [begin, end) of one block that a row sees; empty if end <= begin.
struct Visible {
  int64_t begin, end;
};

HWY_INLINE Visible visible_keys(const AttentionTile& tile, int64_t position, int64_t block_position) {
  const int64_t end = std::min<int64_t>(tile.seen_end(position) - block_position, kBlock);
  const int64_t begin = std::max<int64_t>(tile.seen_begin(position) - block_position, 0);
  return {begin, end};
}

// Rows of the register tile that starts at `row`.
HWY_INLINE int64_t tile_rows(const AttentionTile& tile, int64_t row) {
  const int64_t left = tile.rows() - row;
  const bool tall = tile.cache->values_in_keys() && left <= static_cast<int64_t>(kTallRows);
  return tall ? left : std::min<int64_t>(left, kMaxRegisterRows);
}

void pack_queries(const AttentionTile& tile, float* packed) {
  const int64_t dim = tile.params->head_dim;
  for (int64_t row = 0, count = 0; row < tile.rows(); row += count) {
    count = tile_rows(tile, row);
    const float* q[kTallRows];
    for (int64_t r = 0; r < count; ++r) {
      const int64_t query = (row + r) / tile.heads, head = tile.head_begin + (row + r) % tile.heads;
      q[r] = tile.q.row(tile.sequence->query_begin + tile.query_begin + query) + head * dim;
    }
    float* to = packed + row * dim;
    for (int64_t i = 0; i < dim; ++i) {
      for (int64_t r = 0; r < count; ++r) *to++ = q[r][i];
    }
  }
}

template <size_t... V>
HWY_INLINE VF pairwise_sum(std::index_sequence<V...>, VF (&x)[kRowVectors]) {
  for (size_t width = kRowVectors / 2; width > 0; width /= 2) {
    ((x[V] = V < width ? hn::Add(x[V], x[(V + width) % kRowVectors]) : x[V]), ...);
  }
  return x[0];
}

// The scales [32] of a block's keys and values, or null: they are stored as they are.
struct Scales {
  const float* keys = nullptr;
  const float* values = nullptr;
};

VF soft_capped(VF x, float cap) {
  const F32 d;
  return hn::Mul(hn::Set(d, cap), tanh_full(hn::Div(x, hn::Set(d, cap))));
}

// Scores of the keys that a row sees; v is the vector's place among them.
HWY_INLINE VF seen_scores(VF x, size_t v, const Visible& visible) {
  const F32 d;
  alignas(64) constexpr float kIota[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const VF index = hn::Add(hn::Load(d, kIota), hn::Set(d, static_cast<float>(v * kLanes)));
  const auto seen = hn::And(hn::Ge(index, hn::Set(d, static_cast<float>(visible.begin))),
                            hn::Lt(index, hn::Set(d, static_cast<float>(visible.end))));
  return hn::IfThenElse(seen, x, hn::Set(d, kMinusInfinity));
}

// Turns the scores [count][32] of a register tile into weights e^(score − m), moves m and l on, and gives the factor for what acc
// held. Scales are of keys and values as they lie in the block: a score is multiplied by its key's, and a weight, once l has it,
// by its value's. A row's vectors stay in registers.
template <bool kMasked, size_t... V>
void soften(std::index_sequence<V...> vectors, const AttentionTile& tile, const Visible* visible, int64_t count, Scales scales,
            float* scores, float* m, float* lane_sums, float* correction) {
  const F32 d;
  const VF scale = hn::Set(d, tile.params->scale);
  const float softcap = tile.params->softcap;
  for (int64_t r = 0; r < count; ++r) {
    float* s = scores + r * kBlock;
    VF x[kRowVectors] = {hn::Load(d, s + V * kLanes)...};
    if (scales.keys != nullptr) ((x[V] = hn::Mul(x[V], hn::LoadU(d, scales.keys + V * kLanes))), ...);
    ((x[V] = hn::Mul(x[V], scale)), ...);
    if (softcap > 0.0f) ((x[V] = soft_capped(x[V], softcap)), ...);
    if constexpr (kMasked) ((x[V] = seen_scores(x[V], V, visible[r])), ...);
    VF largest = hn::Set(d, kMinusInfinity);
    ((largest = hn::Max(largest, x[V])), ...);
    // Most blocks bring no new largest score: then nothing is rescaled and the lanes need not be reduced.
    float factor = 1.0f;
    const float old_m = m[r];
    if (!hn::AllFalse(d, hn::Gt(largest, hn::Set(d, old_m)))) {
      m[r] = std::max(old_m, hn::GetLane(hn::MaxOfLanes(d, largest)));
      factor = hn::GetLane(exp_negative(hn::Set(d, old_m - m[r])));
    }
    correction[r] = factor;
    // Nothing visible so far: −inf − −inf would be NaN; from 0 every e^−inf is an exact 0.
    const VF base = hn::Set(d, m[r] == kMinusInfinity ? 0.0f : m[r]);
    ((x[V] = exp_negative(hn::Sub(x[V], base))), ...);
    if (scales.values != nullptr) {
      (hn::Store(hn::Mul(x[V], hn::LoadU(d, scales.values + V * kLanes)), d, s + V * kLanes), ...);
    } else {
      (hn::Store(x[V], d, s + V * kLanes), ...);
    }
    float* sums = lane_sums + r * 16;
    const VF sum = pairwise_sum(vectors, x);
    hn::Store(hn::MulAdd(hn::Load(d, sums), hn::Set(d, factor), sum), d, sums);
  }
}

// acc of a register tile where its rows see different keys: the keys all of them see as one tile, the others row by row, in
// ascending order all the same. A value that a row does not see never meets its acc: 0 · NaN is NaN, and a block may hold another
// request's leftovers.
template <class T>
void add_masked_values(const Visible* visible, int64_t count, const float* p, const ValueBlock<T>& v, float* correction,
                       float* acc) {
  int64_t begin = 0, end = kBlock;
  for (int64_t r = 0; r < count; ++r) begin = std::max(begin, visible[r].begin), end = std::min(end, visible[r].end);
  if (begin >= end) begin = end = 0;  // nothing in common
  const auto alone = [&](int64_t r, int64_t from, int64_t to) HWY_ATTR {
    if (from >= to) return;
    kValueTiles<T>[0](p + r * kBlock, v, from, to, correction + r, Ahead(), acc + r * v.v_stride);
    correction[r] = 1.0f;  // once
  };
  if (begin == end) {
    for (int64_t r = 0; r < count; ++r) alone(r, visible[r].begin, visible[r].end);
    return;
  }
  for (int64_t r = 0; r < count; ++r) alone(r, visible[r].begin, begin);
  kValueTiles<T>[count - 1](p, v, begin, end, correction, Ahead(), acc);
  std::fill(correction, correction + count, 1.0f);
  for (int64_t r = 0; r < count; ++r) alone(r, end, visible[r].end);
}

// A block to come: a decode waits for memory, and blocks lie anywhere, so that the hardware's prefetcher starts anew at each.
struct BlockAhead {
  Ahead keys, values;
};

template <class T>
BlockAhead block_ahead(const KvHeadBlock<T>& head, int64_t key_elements, int64_t value_elements) {
  const auto* keys_end =
      head.key_scales == nullptr ? static_cast<const void*>(head.keys + key_elements) : head.value_scales + kBlock;
  const size_t key_bytes = static_cast<const std::byte*>(keys_end) - reinterpret_cast<const std::byte*>(head.keys);
  return {Ahead(head.keys, key_bytes), head.values == nullptr ? Ahead() : Ahead(head.values, value_elements * sizeof(T))};
}

template <class T>
void attend_block(const AttentionTile& tile, int64_t block_position, const T* keys, const ValueBlock<T>& values, Scales scales,
                  const BlockAhead& ahead, const AttentionScratch& scratch, const State& state) {
  const int64_t dim = tile.params->head_dim, v_stride = kv_value_stride(tile.cache->v_head_dim);
  for (int64_t row = 0, count = 0; row < tile.rows(); row += count) {
    count = tile_rows(tile, row);
    // Positions ascend with rows: the first row's keys end first, the last row's window begins last.
    const int64_t first = tile.position(row / tile.heads), last = tile.position((row + count - 1) / tile.heads);
    if (tile.seen_end(last) <= block_position || tile.seen_begin(first) >= block_position + kKvBlockTokens) continue;
    const bool masked = tile.seen_end(first) < block_position + kKvBlockTokens || tile.seen_begin(last) > block_position;
    Visible visible[kTallRows];
    if (masked) {
      for (int64_t r = 0; r < count; ++r) visible[r] = visible_keys(tile, tile.position((row + r) / tile.heads), block_position);
    }
    alignas(64) float correction[16];
    kScoreTiles<T>[count - 1](scratch.q + row * dim, keys, dim, row == 0 ? ahead.keys : Ahead(), scratch.scores);
    float* m = state.m + row;
    float* lane_sums = scratch.lane_sums + row * 16;
    constexpr auto kVectors = std::make_index_sequence<kRowVectors>();
    masked ? soften<true>(kVectors, tile, visible, count, scales, scratch.scores, m, lane_sums, correction)
           : soften<false>(kVectors, tile, nullptr, count, scales, scratch.scores, m, lane_sums, correction);
    float* acc = state.acc + row * v_stride;
    if (masked) {
      add_masked_values(visible, count, scratch.scores, values, correction, acc);
    } else {
      kValueTiles<T>[count - 1](scratch.scores, values, 0, kBlock, correction, row == 0 ? ahead.values : Ahead(), acc);
    }
  }
}

// `read_end`: where the positions end that this thread goes on to read.
template <class T>
void attend_range(const AttentionTile& tile, int64_t range, int64_t read_end, const AttentionScratch& scratch,
                  float* state_base) {
  const KvCacheView& cache = *tile.cache;
  const State state(tile, state_base);
  const int64_t v_stride = kv_value_stride(cache.v_head_dim);
  std::fill(state.acc, state.acc + tile.rows() * v_stride, 0.0f);
  std::fill(state.m, state.m + tile.rows(), kMinusInfinity);
  std::fill(scratch.lane_sums, scratch.lane_sums + tile.rows() * 16, 0.0f);

  const int64_t key_floats = cache.head_dim * kBlock, value_floats = v_stride * kBlock;
  const int64_t begin = std::max(tile.key_begin(), range * kAttentionRangeTokens) / kKvBlockTokens;
  const int64_t end = ceil_div(std::min(tile.key_end(), (range + 1) * kAttentionRangeTokens), kKvBlockTokens);
  // Converting a block once pays when several register tiles read it. Values that lie in the keys are turned from floats.
  const bool latent = cache.values_in_keys();
  const auto stride = static_cast<size_t>(v_stride);
  const bool widened = sizeof(T) < sizeof(float) && tile.rows() > static_cast<int64_t>(kMaxRegisterRows);
  const auto head_of = [&](int64_t block) { return kv_head_block<T>(cache, tile.sequence->block_table[block], tile.kv_head); };
  for (int64_t block = begin; block < end; ++block) {
    const KvHeadBlock<T> head = head_of(block);
    const Scales scales{head.key_scales, head.value_scales};
    const int64_t position = block * kKvBlockTokens;
    BlockAhead ahead;
    if (position + kKvBlockTokens < read_end) ahead = block_ahead(head_of(block + 1), key_floats, value_floats);
    if (latent) {
      const float* keys = scratch.keys;
      if constexpr (std::is_same_v<T, float>) {
        keys = head.keys;
      } else if constexpr (std::is_same_v<T, int8_t>) {
        widen_latent(head, cache.v_head_dim, cache.head_dim, scratch.keys);
      } else {
        widen(head.keys, key_floats, scratch.keys);
      }
      const auto values = turn_values(keys, cache.v_head_dim, scratch.values);
      attend_block<float>(tile, position, keys, values, {}, ahead, scratch, state);
    } else if (widened) {
      widen(head.keys, key_floats, scratch.keys);
      widen(head.values, value_floats, scratch.values);
      attend_block<float>(tile, position, scratch.keys, {scratch.values, stride, stride}, scales, ahead, scratch, state);
    } else {
      attend_block<T>(tile, position, head.keys, {head.values, stride, stride}, scales, ahead, scratch, state);
    }
  }
  for (int64_t r = 0; r < tile.rows(); ++r) {
    state.l[r] = hn::GetLane(hn::SumOfLanes(F32(), hn::Load(F32(), scratch.lane_sums + r * 16)));
  }
}

void attend_range(const AttentionTile& tile, int64_t range, int64_t read_end, const AttentionScratch& scratch, float* state) {
  switch (tile.cache->dtype) {
    case DType::kBF16: return attend_range<BFloat16>(tile, range, read_end, scratch, state);
    case DType::kF16: return attend_range<Float16>(tile, range, read_end, scratch, state);
    case DType::kI8: return attend_range<int8_t>(tile, range, read_end, scratch, state);
    default: return attend_range<float>(tile, range, read_end, scratch, state);
  }
}

HWY_INLINE float exp_one(float x) { return hn::GetLane(exp_negative(hn::Set(F32(), x))); }

void merge(const AttentionTile& tile, float* into_base, const float* from_base) {
  const F32 d;
  const State into(tile, into_base), from(tile, const_cast<float*>(from_base));
  const int64_t v_stride = kv_value_stride(tile.cache->v_head_dim);
  for (int64_t r = 0; r < tile.rows(); ++r) {
    float* a = into.acc + r * v_stride;
    const float* b = from.acc + r * v_stride;
    if (from.m[r] == kMinusInfinity) continue;
    if (into.m[r] == kMinusInfinity) {
      std::copy(b, b + v_stride, a);
      into.m[r] = from.m[r], into.l[r] = from.l[r];
      continue;
    }
    const float m = std::max(into.m[r], from.m[r]);
    const float x = exp_one(into.m[r] - m), y = exp_one(from.m[r] - m);
    for (int64_t i = 0; i < v_stride; i += kLanes) {
      hn::Store(hn::MulAdd(hn::Load(d, b + i), hn::Set(d, y), hn::Mul(hn::Load(d, a + i), hn::Set(d, x))), d, a + i);
    }
    into.l[r] = into.l[r] * x + from.l[r] * y;
    into.m[r] = m;
  }
}

void clear(const AttentionTile& tile, float* base) {
  const State state(tile, base);
  std::fill(state.acc, state.acc + tile.rows() * kv_value_stride(tile.cache->v_head_dim), 0.0f);
  std::fill(state.m, state.m + tile.rows(), kMinusInfinity);
  std::fill(state.l, state.l + tile.rows(), 0.0f);
}

void finish(const AttentionTile& tile, const float* base) {
  const State state(tile, const_cast<float*>(base));
  const int64_t v_dim = tile.cache->v_head_dim, v_stride = kv_value_stride(v_dim);
  for (int64_t r = 0; r < tile.rows(); ++r) {
    const int64_t query = r / tile.heads, head = tile.head_begin + r % tile.heads;
    float l = state.l[r], factor = 1.0f;
    if (!tile.params->sinks.empty()) {
      const float sink = tile.params->sinks[head];
      const float m = std::max(state.m[r], sink);
      factor = m == kMinusInfinity ? 1.0f : exp_one(state.m[r] - m);
      l = l * factor + (m == kMinusInfinity ? 0.0f : exp_one(sink - m));
    }
    // l is 0 only if every visible score is −inf: no key has weight.
    const float inverse = l == 0.0f ? 0.0f : factor / l;
    float* out = tile.out.row(tile.sequence->query_begin + tile.query_begin + query) + head * v_dim;
    for (int64_t i = 0; i < v_dim; ++i) out[i] = l == 0.0f ? 0.0f : state.acc[r * v_stride + i] * inverse;
  }
}

void one_range(const AttentionTile& tile, int64_t range, float* scratch_base, float* state) {
  const AttentionScratch scratch(scratch_base, tile.params->head_dim, tile.cache->v_head_dim);
  pack_queries(tile, scratch.q);
  attend_range(tile, range, std::min(tile.key_end(), (range + 1) * kAttentionRangeTokens), scratch, state);
}

void whole(const AttentionTile& tile, float* scratch_base) {
  const AttentionScratch scratch(scratch_base, tile.params->head_dim, tile.cache->v_head_dim);
  pack_queries(tile, scratch.q);
  int64_t range = tile.range_begin();
  attend_range(tile, range, tile.key_end(), scratch, scratch.merged_state);  // the first: merging into nothing is copying
  for (++range; range < tile.range_end(); ++range) {
    attend_range(tile, range, tile.key_end(), scratch, scratch.range_state);
    merge(tile, scratch.merged_state, scratch.range_state);
  }
  finish(tile, scratch.merged_state);
}

AttentionTileKernels tile_kernels() { return {&whole, &one_range, &merge, &clear, &finish}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/highway_level.h"

namespace choral::kernels {

int64_t attention_scratch_floats(int64_t head_dim, int64_t v_head_dim) {
  return kMaxTileRows * (head_dim + 16) + kKvBlockTokens * (head_dim + turned_value_stride(v_head_dim) + 16) +
         2 * attention_state_floats(kMaxTileRows, v_head_dim);
}

AttentionTileKernels attention_tile_kernels(CpuLevel level) { return CHORAL_AT_LEVEL(level, tile_kernels)(); }

}  // namespace choral::kernels
#endif  // HWY_ONCE
