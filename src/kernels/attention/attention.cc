#include "kernels/attention/attention.h"

#include <atomic>

#include "kernels/attention/attention_plan.h"

namespace choral::kernels {
namespace {

// States of the largest tile that are held for each thread; of smaller ones as many as fit.
constexpr int64_t kStatesPerThread = 8;

// Work that threads share, and where the states of divided tiles are.
struct Work {
  const AttentionPlan& plan;
  const AttentionSplit& split;
  AttentionTileKernels kernels;
  float* states;
  int64_t state_floats;
  std::span<int64_t> pending;  // of each divided tile, ranges of the wave that are not computed yet
  std::span<float> scratch;    // of all threads

  float* merged(int64_t i) const { return states + i * state_floats; }
  float* range_state(int64_t i, int64_t w) const { return states + (split.count() + i * split.wave() + w) * state_floats; }
};

void merge(const Work& work, const AttentionTile& tile, int64_t i, int64_t n) {
  const auto ranges = work.split.ranges(tile, n);
  if (n == 0) work.kernels.clear(tile, work.merged(i));
  for (int64_t w = 0; w < ranges.count(); ++w) work.kernels.merge(tile, work.merged(i), work.range_state(i, w));
  if (ranges.end == tile.range_end()) work.kernels.finish(tile, work.merged(i));
}

// The n-th wave, and what other work comes with it: the tiles that are not divided go first, so that small parts fill up the end.
// Whoever computes the last of a tile's ranges merges them, in order.
void run_wave(const Context& ctx, const Work& work, int64_t n) {
  const AttentionPlan& plan = work.plan;
  const AttentionSplit& split = work.split;
  for (int64_t i = 0; i < split.count(); ++i) work.pending[i] = split.ranges(plan.tile(split.tile(i)), n).count();
  const int64_t own_floats = std::ssize(work.scratch) / ctx.pool.size(), tiles = n == 0 ? plan.tiles() : 0;
  ctx.pool.parallel_for(tiles + split.parts(), 1, [&](int64_t begin, int64_t end, int thread) {
    float* const own = work.scratch.data() + thread * own_floats;
    for (int64_t j = begin; j < end; ++j) {
      if (j < tiles) {
        if (!split.has(j)) work.kernels.whole(plan.tile(j), own);
        continue;
      }
      const int64_t i = (j - tiles) / split.wave(), w = (j - tiles) % split.wave();
      const AttentionTile tile = plan.tile(split.tile(i));
      const auto ranges = split.ranges(tile, n);
      if (w >= ranges.count()) continue;
      work.kernels.one_range(tile, ranges.begin + w, own, work.range_state(i, w));
      if (std::atomic_ref(work.pending[i]).fetch_sub(1, std::memory_order_acq_rel) == 1) merge(work, tile, i, n);
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
  const int threads = ctx.pool.size();
  const AttentionPlan plan(params, cache, q, out, sequences, ctx.scratch.make<int64_t>(sequences.size() + 1), threads);
  if (plan.tiles() == 0) return;

  const int64_t state_floats = attention_state_floats(plan.most_rows(), cache.v_head_dim);
  const int64_t floats = threads > 1 ? kStatesPerThread * threads * attention_state_floats(kMaxTileRows, cache.v_head_dim) : 0;
  const int64_t most_divided = AttentionSplit::kPartsOfShare * threads;
  const AttentionSplit split(plan, threads, floats / state_floats, ctx.scratch.make<int64_t>(most_divided));
  const Work work{.plan = plan,
                  .split = split,
                  .kernels = attention_tile_kernels(ctx.level),
                  .states = ctx.scratch.make<float>(floats).data(),
                  .state_floats = state_floats,
                  .pending = ctx.scratch.make<int64_t>(split.count()),
                  .scratch = ctx.scratch.make<float>(threads * attention_scratch_floats(params.head_dim, cache.v_head_dim))};
  run_wave(ctx, work, 0);
  for (int64_t n = 1; n < split.waves(); ++n) run_wave(ctx, work, n);
}

}  // namespace choral::kernels
