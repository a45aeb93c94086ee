#include "kernels/attention/attention_plan.h"

namespace choral::kernels {
namespace {

int64_t ranges_of(const AttentionTile& tile) { return tile.range_end() - tile.range_begin(); }

int64_t cost(int64_t rows, const AttentionTile& tile) { return rows * (tile.key_end() - tile.key_begin()); }

}  // namespace

AttentionPlan::AttentionPlan(const AttentionParams& params, const KvCacheView& cache, MatrixView<const float> q,
                             MatrixView<float> out, std::span<const AttentionSequence> sequences, std::span<int64_t> first_tile,
                             int threads)
    : params_(params),
      cache_(cache),
      q_(q),
      out_(out),
      sequences_(sequences),
      first_tile_(first_tile),
      group_(params.heads / params.kv_heads) {
  cut(std::min(group_, kMaxTileRows), kMaxTileRows);
  // K and V are then read more often, by threads that had nothing to do.
  if (const int64_t few = parts(); few > 0 && few < threads) cut(ceil_div(head_chunk_ * few, threads), kMaxTileRows);
  if (const int64_t few = parts(); few > 0 && few < 2 * threads) cut(head_chunk_, kMaxTileRows * few / (2 * threads));
}

void AttentionPlan::cut(int64_t heads_at_once, int64_t most_rows) {
  head_chunk_ = heads_at_once;
  query_chunk_ = std::max<int64_t>(most_rows / head_chunk_, 1);
  first_tile_[0] = 0;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    first_tile_[i + 1] = first_tile_[i] + across() * ceil_div(sequences_[i].query_count, query_chunk_);
  }
}

int64_t AttentionPlan::most_rows() const {
  int64_t queries = 0;
  for (const AttentionSequence& s : sequences_) queries = std::max(queries, s.query_count);
  return head_chunk_ * std::min(query_chunk_, queries);
}

int64_t AttentionPlan::parts() const {
  int64_t count = 0;
  for_each_query_chunk([&](int64_t, const AttentionTile& tile) { count += across() * ranges_of(tile); });
  return count;
}

AttentionTile AttentionPlan::tile(int64_t index) const {
  const auto next = std::upper_bound(first_tile_.begin(), first_tile_.end(), index);
  const auto s = static_cast<size_t>(next - first_tile_.begin() - 1);
  return tile_of(s, index - first_tile_[s]);
}

AttentionTile AttentionPlan::tile_of(size_t s, int64_t local) const {
  const AttentionSequence& sequence = sequences_[s];
  const int64_t chunks = ceil_div(sequence.query_count, query_chunk_), head_chunks = ceil_div(group_, head_chunk_);
  const int64_t query = (chunks - 1 - local / across()) * query_chunk_;  // the longest first
  const int64_t kv_head = local / head_chunks % params_.kv_heads, head = local % head_chunks * head_chunk_;
  return {&params_,
          &cache_,
          &sequence,
          q_,
          out_,
          kv_head,
          kv_head * group_ + head,
          std::min(head_chunk_, group_ - head),
          query,
          std::min(query_chunk_, sequence.query_count - query)};
}

AttentionSplit::AttentionSplit(const AttentionPlan& plan, int threads, int64_t states, std::span<int64_t> tiles) : tiles_(tiles) {
  int64_t total = 0, found = 0, ranges = 0;
  plan.for_each_query_chunk(
      [&](int64_t, const AttentionTile& tile) { total += cost(plan.heads() * tile.queries, tile); });  // of all heads
  const int64_t most = std::min<int64_t>(std::ssize(tiles), states / 3);
  plan.for_each_query_chunk([&](int64_t first, const AttentionTile& tile) {
    if (ranges_of(tile) < 2 || cost(tile.rows(), tile) * kPartsOfShare * threads <= total) return;
    const int64_t before = found;
    for (int64_t i = first; i < first + plan.across() && found < most; ++i) tiles[found++] = i;
    if (found > before) ranges = std::max(ranges, ranges_of(tile));
  });
  tiles_ = tiles.first(found);
  if (found == 0) return;
  wave_ = std::min(states / found - 1, ranges);
  if (wave_ > threads && wave_ < ranges) wave_ -= wave_ % threads;
  waves_ = ceil_div(ranges, wave_);
}

}  // namespace choral::kernels
