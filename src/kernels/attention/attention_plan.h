// How attention of a batch is cut into work for threads: arithmetic alone. No cut changes a bit, since a tile has the same
// ranges, merged in one order, wherever they are computed.
#pragma once

#include <algorithm>
#include <span>

#include "base/checked_math.h"
#include "kernels/attention/attention_tile.h"

namespace choral::kernels {

// Tiles: (sequence, KV head, chunk of its query heads, chunk of its query rows).
class AttentionPlan {
 public:
  // All of it outlives the plan. first_tile: room for sequences + 1.
  AttentionPlan(const AttentionParams& params, const KvCacheView& cache, MatrixView<const float> q, MatrixView<float> out,
                std::span<const AttentionSequence> sequences, std::span<int64_t> first_tile, int threads);

  int64_t heads() const { return params_.heads; }
  int64_t tiles() const { return first_tile_[sequences_.size()]; }
  int64_t most_rows() const;  // of a tile
  AttentionTile tile(int64_t index) const;

  // Tiles that differ in their heads alone follow one another: so many. The first has the most heads.
  int64_t across() const { return params_.kv_heads * ceil_div(group_, head_chunk_); }
  // Calls run(index, tile) for the first of each.
  template <class Run>
  void for_each_query_chunk(Run run) const {
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (int64_t i = first_tile_[s]; i < first_tile_[s + 1]; i += across()) run(i, tile_of(s, i - first_tile_[s]));
    }
  }

 private:
  void cut(int64_t heads_at_once, int64_t most_rows);  // of a tile
  int64_t parts() const;                               // that threads can work on: ranges of tiles
  AttentionTile tile_of(size_t sequence, int64_t local) const;

  const AttentionParams& params_;
  const KvCacheView& cache_;
  MatrixView<const float> q_;
  MatrixView<float> out_;
  std::span<const AttentionSequence> sequences_;
  std::span<int64_t> first_tile_;
  int64_t group_;           // query heads of a KV head
  int64_t head_chunk_ = 0;  // of them in one tile; more than a tile holds only with multi-query attention
  int64_t query_chunk_ = 0;
};

// Tiles divided by ranges, which go to threads in waves, so that the number of states held does not grow with the context.
class AttentionSplit {
 public:
  // A tile of more than this part of a thread's share is divided: what threads wait for one another at the end is a small part of
  // their work.
  static constexpr int64_t kPartsOfShare = 8;

  // Takes the tiles that are too large for a share, as far as there are states for two ranges of each, and one that holds what is
  // merged. tiles: room for kPartsOfShare · threads.
  AttentionSplit(const AttentionPlan& plan, int threads, int64_t states, std::span<int64_t> tiles);

  int64_t count() const { return std::ssize(tiles_); }
  int64_t wave() const { return wave_; }    // ranges of each tile at once
  int64_t waves() const { return waves_; }  // of the longest
  int64_t parts() const { return count() * wave_; }
  int64_t tile(int64_t i) const { return tiles_[i]; }
  bool has(int64_t tile) const { return std::binary_search(tiles_.begin(), tiles_.end(), tile); }
  // What a tile has in the n-th wave: ranges [begin, end).
  struct Ranges {
    int64_t begin, end;
    int64_t count() const { return std::max<int64_t>(end - begin, 0); }
  };
  Ranges ranges(const AttentionTile& tile, int64_t n) const {
    const int64_t begin = tile.range_begin() + n * wave_;
    return {begin, std::min(begin + wave_, tile.range_end())};
  }

 private:
  std::span<int64_t> tiles_;  // ascending
  int64_t wave_ = 0, waves_ = 0;
};

}  // namespace choral::kernels
