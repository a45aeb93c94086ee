#include "kernels/attention/attention.h"

#include <algorithm>
#include <array>

#include "base/checked_math.h"
#include "kernels/attention/attention_tile.h"

namespace choral::kernels {
namespace {

// How a batch is cut: (sequence, KV head, chunk of its query heads, chunk of its query rows).
struct Plan {
  const AttentionParams& params;
  const KvCacheView& cache;
  MatrixView<const float> q;
  MatrixView<float> out;
  std::span<const AttentionSequence> sequences;
  std::span<int64_t> first_tile;  // [sequences + 1]
  int64_t group;                  // query heads of a KV head
  int64_t head_chunk = 0;         // of them in one tile; more than a tile holds only with multi-query attention
  int64_t query_chunk = 0;

  void cut(int64_t heads_at_once) {
    head_chunk = heads_at_once;
    query_chunk = kMaxTileRows / head_chunk;
    first_tile[0] = 0;
    for (size_t i = 0; i < sequences.size(); ++i) first_tile[i + 1] = first_tile[i] + tiles_of(sequences[i]);
  }

  int64_t tiles() const { return first_tile[sequences.size()]; }
  int64_t most_rows() const {  // of a tile
    int64_t queries = 0;
    for (const AttentionSequence& s : sequences) queries = std::max(queries, s.query_count);
    return head_chunk * std::min(query_chunk, queries);
  }
  // That threads can work on: ranges of tiles.
  int64_t parts() const {
    int64_t count = 0;
    for (int64_t i = 0; i < tiles(); ++i) count += tile(i).range_end() - tile(i).range_begin();
    return count;
  }

  int64_t tiles_of(const AttentionSequence& s) const {
    return params.kv_heads * ceil_div(group, head_chunk) * ceil_div(s.query_count, query_chunk);
  }

  AttentionTile tile(int64_t index) const {
    const auto next = std::upper_bound(first_tile.begin(), first_tile.end(), index);
    const auto s = next - first_tile.begin() - 1;
    const AttentionSequence& sequence = sequences[s];
    const int64_t chunks = ceil_div(sequence.query_count, query_chunk), head_chunks = ceil_div(group, head_chunk);
    const int64_t local = index - first_tile[s];
    const int64_t query = (chunks - 1 - local / (params.kv_heads * head_chunks)) * query_chunk;  // the longest first
    const int64_t kv_head = local / head_chunks % params.kv_heads, head = local % head_chunks * head_chunk;
    return {&params,
            &cache,
            &sequence,
            q,
            out,
            kv_head,
            kv_head * group + head,
            std::min(head_chunk, group - head),
            query,
            std::min(query_chunk, sequence.query_count - query)};
  }
};

int64_t cost(const AttentionTile& tile) { return tile.rows() * (tile.key_end() - tile.key_begin()); }

// States of the largest tile that are held for each thread; of smaller ones as many as fit.
constexpr int64_t kStatesPerThread = 8;
// A tile of more than this part of a thread's share is divided by ranges: what threads wait for one another at the end is a small
// part of their work.
constexpr int64_t kPartsOfShare = 8;

// Tiles divided by ranges, which go to threads in waves, so that the number of states held does not grow with the context; after
// each wave they are merged in order.
struct Split {
  std::span<int64_t> tiles;  // ascending
  std::span<float> states;
  int64_t state_floats;
  int64_t wave = 0;   // ranges of each tile at once; one more state holds what is merged
  int64_t waves = 0;  // of the longest

  int64_t count() const { return std::ssize(tiles); }
  int64_t parts() const { return count() * wave; }
  float* merged(int64_t i) const { return states.data() + i * state_floats; }
  float* range_state(int64_t i, int64_t w) const { return states.data() + (count() + i * wave + w) * state_floats; }
  bool has(int64_t tile) const { return std::binary_search(tiles.begin(), tiles.end(), tile); }

  // Takes the tiles that are too large for a share, as far as there are states for two ranges of each.
  void choose(const Plan& plan, int threads) {
    int64_t total = 0, found = 0, ranges = 0;
    for (int64_t i = 0; i < plan.tiles(); ++i) total += cost(plan.tile(i));
    const int64_t capacity = std::ssize(states) / state_floats;
    const int64_t most = std::min<int64_t>(std::ssize(tiles), capacity / 3);
    for (int64_t i = 0; i < plan.tiles() && found < most; ++i) {
      const AttentionTile tile = plan.tile(i);
      const int64_t of_tile = tile.range_end() - tile.range_begin();
      if (of_tile < 2 || cost(tile) * kPartsOfShare * threads <= total) continue;
      tiles[found++] = i;
      ranges = std::max(ranges, of_tile);
    }
    tiles = tiles.first(found);
    if (found == 0) return;
    wave = std::min(capacity / found - 1, ranges);
    if (wave > threads && wave < ranges) wave -= wave % threads;
    waves = ceil_div(ranges, wave);
  }
};

// The n-th wave, and what other work comes with it: the tiles that are not split go first, so that small parts fill up the end.
void run_wave(const Context& ctx, const Plan& plan, const AttentionTileKernels& kernels, const Split& split, int64_t n,
              std::span<float> scratch) {
  const int64_t scratch_floats = std::ssize(scratch) / ctx.pool.size(), tiles = n == 0 ? plan.tiles() : 0;
  ctx.pool.parallel_for(tiles + split.parts(), 1, [&](int64_t begin, int64_t end, int thread) {
    float* const own = scratch.data() + thread * scratch_floats;
    for (int64_t j = begin; j < end; ++j) {
      if (j < tiles) {
        if (!split.has(j)) kernels.whole(plan.tile(j), own);
        continue;
      }
      const int64_t i = (j - tiles) / split.wave, w = (j - tiles) % split.wave;
      const AttentionTile tile = plan.tile(split.tiles[i]);
      const int64_t range = tile.range_begin() + n * split.wave + w;
      if (range < tile.range_end()) kernels.one_range(tile, range, own, split.range_state(i, w));
    }
  });
}

void merge_wave(const Context& ctx, const Plan& plan, const AttentionTileKernels& kernels, const Split& split, int64_t n) {
  ctx.pool.parallel_for(split.count(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const AttentionTile tile = plan.tile(split.tiles[i]);
      if (n == 0) kernels.clear(tile, split.merged(i));
      for (int64_t w = 0; w < split.wave && tile.range_begin() + n * split.wave + w < tile.range_end(); ++w) {
        kernels.merge(tile, split.merged(i), split.range_state(i, w));
      }
      if (n == split.waves - 1) kernels.finish(tile, split.merged(i));
    }
  });
}

void check(const AttentionParams& params, MatrixView<const float> q, const KvCacheView& cache,
           std::span<const AttentionSequence> sequences, MatrixView<float> out) {
  CHORAL_CHECK(params.kv_heads > 0 && params.heads % params.kv_heads == 0 && params.kv_heads == cache.kv_heads &&
                   params.head_dim == cache.head_dim && q.cols == params.heads * params.head_dim &&
                   out.cols == params.heads * cache.v_head_dim && out.rows == q.rows,
               "q, out, the cache and the heads of attention fit");
  CHORAL_CHECK(!cache.values_in_keys() || cache.v_head_dim <= cache.head_dim,
               "a value that lies in its key is no longer than it");
  CHORAL_CHECK(is_kv_dtype(cache.dtype), "a KV cache holds f32, bf16, f16 or int8");
  CHORAL_CHECK(params.sinks.empty() || std::ssize(params.sinks) == params.heads, "one sink for each head");
  for (const AttentionSequence& s : sequences) {
    CHORAL_CHECK(s.query_begin >= 0 && s.query_count >= 0 && s.context_tokens >= 0 && s.query_begin + s.query_count <= q.rows,
                 "a sequence's rows lie in q");
    CHORAL_CHECK(s.query_count == 0 || s.context_tokens + s.query_count <= std::ssize(s.block_table) * kKvBlockTokens,
                 "a block table covers its sequence");
  }
}

}  // namespace

void paged_attention(const Context& ctx, const AttentionParams& params, MatrixView<const float> q, const KvCacheView& cache,
                     std::span<const AttentionSequence> sequences, MatrixView<float> out) {
  check(params, q, cache, sequences, out);
  const Arena::Mark mark(ctx.scratch);
  const int64_t group = params.heads / params.kv_heads;
  const int threads = ctx.pool.size();
  Plan plan{params, cache, q, out, sequences, ctx.scratch.make<int64_t>(sequences.size() + 1), group};
  plan.cut(std::min(group, kMaxTileRows));
  if (plan.tiles() == 0) return;
  if (plan.parts() < threads) {  // K and V are then read more often, by threads that had nothing to do
    plan.cut(ceil_div(plan.head_chunk * plan.parts(), threads));
  }

  const int64_t states = threads > 1 ? kStatesPerThread * threads * attention_state_floats(kMaxTileRows, cache.v_head_dim) : 0;
  Split split{ctx.scratch.make<int64_t>(kPartsOfShare * threads), ctx.scratch.make<float>(states),
              attention_state_floats(plan.most_rows(), cache.v_head_dim)};
  split.choose(plan, threads);
  const auto scratch = ctx.scratch.make<float>(threads * attention_scratch_floats(params.head_dim, cache.v_head_dim));
  const AttentionTileKernels kernels = attention_tile_kernels(ctx.level);
  run_wave(ctx, plan, kernels, split, 0, scratch);
  for (int64_t n = 0; n < split.waves; ++n) {
    if (n > 0) run_wave(ctx, plan, kernels, split, n, scratch);
    merge_wave(ctx, plan, kernels, split, n);
  }
}

}  // namespace choral::kernels
