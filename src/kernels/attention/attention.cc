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

// A tile that alone is more than a thread's share (one long decode) is divided by ranges instead; at most `threads` - 1 tiles
// are.
bool is_split(const AttentionTile& tile, int64_t share) {
  return tile.range_end() - tile.range_begin() > 1 && cost(tile) > share;
}

// Ranges go to threads in waves, so that the number of states held does not grow with the context; after each wave they are
// merged in order.
void run_split(const Context& ctx, const Plan& plan, const AttentionTileKernels& kernels, std::span<const int64_t> tiles,
               std::span<float> scratch, int64_t scratch_floats, std::span<float> states, int64_t state_floats) {
  const auto count = std::ssize(tiles);
  const auto capacity = std::ssize(states) / state_floats;
  int64_t wave = capacity / count - 1;  // ranges of each tile at once; one more state holds what is merged
  if (wave > ctx.pool.size()) wave -= wave % ctx.pool.size();
  const auto merged = [&](int64_t i) { return states.data() + i * state_floats; };
  const auto range_state = [&](int64_t i, int64_t w) { return states.data() + (count + i * wave + w) * state_floats; };
  int64_t waves = 0;
  for (int64_t i = 0; i < count; ++i) {
    const AttentionTile tile = plan.tile(tiles[i]);
    kernels.clear(tile, merged(i));
    waves = std::max(waves, ceil_div(tile.range_end() - tile.range_begin(), wave));
  }
  for (int64_t n = 0; n < waves; ++n) {
    ctx.pool.parallel_for(count * wave, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t j = begin; j < end; ++j) {
        const int64_t i = j % count, w = j / count;
        const AttentionTile tile = plan.tile(tiles[i]);
        const int64_t range = tile.range_begin() + n * wave + w;
        if (range < tile.range_end()) kernels.one_range(tile, range, scratch.data() + thread * scratch_floats, range_state(i, w));
      }
    });
    ctx.pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const AttentionTile tile = plan.tile(tiles[i]);
        for (int64_t w = 0; w < wave && tile.range_begin() + n * wave + w < tile.range_end(); ++w) {
          kernels.merge(tile, merged(i), range_state(i, w));
        }
        if (n == waves - 1) kernels.finish(tile, merged(i));
      }
    });
  }
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
  if (plan.tiles() > 0 && plan.parts() < threads) {  // K and V are then read more often, by threads that had nothing to do
    plan.cut(ceil_div(plan.head_chunk * plan.parts(), threads));
  }

  const int64_t scratch_floats = attention_scratch_floats(params.head_dim, cache.v_head_dim);
  const int64_t state_floats = attention_state_floats(cache.v_head_dim);
  const auto scratch = ctx.scratch.make<float>(threads * scratch_floats);
  const auto states = ctx.scratch.make<float>(threads > 1 ? 4 * threads * state_floats : 0);
  const auto split = ctx.scratch.make<int64_t>(threads);
  const AttentionTileKernels kernels = attention_tile_kernels(ctx.level);

  int64_t total = 0;
  size_t splits = 0;
  if (threads > 1) {
    for (int64_t i = 0; i < plan.tiles(); ++i) total += cost(plan.tile(i));
  }
  const int64_t share = threads > 1 ? total / threads : INT64_MAX;
  ctx.pool.parallel_for(plan.tiles(), 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      const AttentionTile tile = plan.tile(i);
      if (!is_split(tile, share)) kernels.whole(tile, scratch.data() + thread * scratch_floats);
    }
  });
  if (threads == 1) return;
  for (int64_t i = 0; i < plan.tiles(); ++i) {
    if (is_split(plan.tile(i), share)) split[splits++] = i;
  }
  if (splits > 0) run_split(ctx, plan, kernels, split.first(splits), scratch, scratch_floats, states, state_floats);
}

}  // namespace choral::kernels
