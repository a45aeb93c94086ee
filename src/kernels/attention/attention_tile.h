// The inner form of paged attention: one tile of query rows against one KV head. attention.cc cuts the batch into tiles and gives
// them to threads; the functions here are compiled once per Highway target and know nothing of threads. A tile's rows are (query,
// head) pairs, query-major; all heads of a tile read the same KV head, so that K and V are read once for them. A state is what
// the online softmax has of some keys: per row the largest score m, the sum l of e^(score − m) and acc = Σ e^(score − m)·v.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace choral::kernels {

inline constexpr int64_t kMaxTileRows = 48;  // Q, scores and accumulators of a tile stay in L2 beside a KV block

struct AttentionTile {
  const AttentionParams* params;
  const KvCacheView* cache;
  const AttentionSequence* sequence;
  MatrixView<const float> q;
  MatrixView<float> out;
  int64_t kv_head;
  int64_t head_begin;  // query heads [head_begin, head_begin + heads)
  int64_t heads;
  int64_t query_begin;  // rows of the sequence's chunk [query_begin, query_begin + queries)
  int64_t queries;

  int64_t rows() const { return heads * queries; }
  int64_t position(int64_t query) const { return sequence->context_tokens + query_begin + query; }
  // The first position that a row at `position` sees, and one past the last; both ascend with it.
  int64_t seen_begin(int64_t position) const {
    const int64_t window = params->sliding_window;
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  int64_t seen_end(int64_t position) const {
    if (!params->sees_later) return position + 1;
    const int64_t end = sequence->context_tokens + sequence->query_count;
    return params->sliding_window > 0 ? std::min(end, position + params->sliding_window) : end;
  }
  // Of any row.
  int64_t key_begin() const { return seen_begin(position(0)); }
  int64_t key_end() const { return seen_end(position(queries - 1)); }
  int64_t range_begin() const { return key_begin() / kAttentionRangeTokens; }
  int64_t range_end() const { return (key_end() - 1) / kAttentionRangeTokens + 1; }
};

// From one row to the next of a block whose values were turned: a row of 512 floats would meet its neighbours in one set of the
// cache.
inline int64_t turned_value_stride(int64_t v_head_dim) { return kv_value_stride(v_head_dim) + 16; }

// Sizes in floats. A state is [rows][v_stride] acc, [rows] m, [rows] l.
inline int64_t attention_state_floats(int64_t rows, int64_t v_head_dim) {
  return round_up(rows * (kv_value_stride(v_head_dim) + 2), 16);
}
int64_t attention_scratch_floats(int64_t head_dim, int64_t v_head_dim);  // of one thread

struct AttentionTileKernels {
  void (*whole)(const AttentionTile&, float* scratch);                                   // all ranges, writes out
  void (*one_range)(const AttentionTile&, int64_t range, float* scratch, float* state);  // state of one range
  void (*merge)(const AttentionTile&, float* into, const float* from);                   // from follows into
  void (*clear)(const AttentionTile&, float* state);                                     // the state of no keys
  void (*finish)(const AttentionTile&, const float* state);                              // writes out
};
AttentionTileKernels attention_tile_kernels(CpuLevel level);

}  // namespace choral::kernels
