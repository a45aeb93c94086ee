// Attention of a mixed batch (prefill chunks and decode rows) over the paged KV cache, float32 arithmetic; causal, but for
// AttentionParams::sees_later.
// For row i of a sequence, its own key included: out = Σ_j softmax_j(scale · q·k_j) · v_j over the visible j.
// Invariant 1: a row sees the blocks of 32 keys in ascending absolute order with an online softmax, restarted every 1024 absolute
// positions (kAttentionRangeTokens) and merged in order. Neither chunking, tile shape, neighbours nor threads enter, so a long
// decode can be split over ranges and still equals its prefill to the bit. A key that a row must not see contributes exactly
// nothing, NaN included. With an int8 cache a score q·k_j is multiplied by k_j's scale and a weight by v_j's; only values that
// lie in their keys are multiplied out first. Allocates only from ctx.scratch, and the amount does not grow with the context.
// Oracle: ref/attention.h.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention/kv_cache.h"
#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

inline constexpr int64_t kAttentionRangeTokens = 1024;

struct AttentionParams {
  int64_t heads = 0;  // multiple of kv_heads: head h reads KV head h / (heads / kv_heads)
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // of q and k; that of v and of the output is the cache's v_head_dim
  float scale = 1.0f;
  float softcap = 0.0f;               // > 0: score = softcap · tanh(score / softcap), before the mask
  int64_t sliding_window = 0;         // > 0: key j is visible to query i iff i − window < j <= i; 0: iff j <= i
  std::span<const float> sinks = {};  // [heads] or empty: a logit that joins each head's denominator and has no value (gpt-oss)
  // Keys after a query are visible too, up to the sequence's last row, or within the window: |i − j| < window. All of a
  // sequence's rows come at once.
  bool sees_later = false;
};

// Rows [query_begin, query_begin + query_count) of q are the tokens at positions context_tokens, context_tokens + 1, …
struct AttentionSequence {
  int64_t query_begin = 0;
  int64_t query_count = 0;
  int64_t context_tokens = 0;                 // tokens in the cache before the first query row
  std::span<const int32_t> block_table = {};  // block_table[p / 32] holds position p; covers context_tokens + query_count.
};                                            // Blocks wholly before every row's window are never read and may hold any number.

// q [tokens, heads · head_dim] → out [tokens, heads · v_head_dim]. The query rows' own keys and values are already in the cache.
// Rows of q in no sequence are not written. out may not overlap q.
void paged_attention(const Context& ctx, const AttentionParams& params, MatrixView<const float> q, const KvCacheView& cache,
                     std::span<const AttentionSequence> sequences, MatrixView<float> out);

}  // namespace choral::kernels
