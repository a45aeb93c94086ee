// Tests of the operators on the KV cache. They are tried together: what one stores the other reads.
#include "platform/plugin/conformance.h"

namespace choral::platform::ops {
namespace {

using Results = std::vector<Out>;
constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 16;

struct Feature {
  std::string_view name = {};
  int64_t sliding_window = 0;
  float softcap = 0;
  bool sinks = false;
  int64_t v_head_dim = kHeadDim;
  bool values_in_keys = false;
};

constexpr std::array kFeatures{Feature{},
                               Feature{.name = "a sliding window", .sliding_window = 34},
                               Feature{.name = "a soft-cap", .softcap = 0.5F},
                               Feature{.name = "sinks", .sinks = true},
                               Feature{.name = "values narrower than keys", .v_head_dim = kHeadDim / 2},
                               Feature{.name = "values wider than keys", .v_head_dim = 2 * kHeadDim},
                               Feature{.name = "values in keys", .v_head_dim = kHeadDim - 5, .values_in_keys = true}};

// Two sequences: one of a prompt, one of a later chunk whose first tokens were written before.
Results attend(ConformanceRun& run, const Feature& feature) {
  constexpr int64_t kPrompt = 5, kTokens = 40, kChunk = 3, kAsked = kPrompt + kChunk;  // the second: more than a block
  constexpr int64_t kBlock = kernels::kKvBlockTokens;
  const auto cache = feature.values_in_keys ? run.latent_cache(3, kKvHeads, kHeadDim, feature.v_head_dim)
                                            : run.cache(3, kKvHeads, kHeadDim, feature.v_head_dim);
  const Out q = run.matrix(kAsked, kHeads * kHeadDim), k = run.matrix(kPrompt + kTokens, kKvHeads * kHeadDim),
            v = feature.values_in_keys ? Out() : run.matrix(kPrompt + kTokens, kKvHeads * feature.v_head_dim),
            out = run.matrix(kAsked, kHeads * feature.v_head_dim);
  if (!run.status().ok()) return {};
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < kPrompt; ++i) slots.push_back(2 * kBlock + i);
  for (int64_t i = 0; i < kTokens; ++i) slots.push_back(i < kBlock ? kBlock + i : i - kBlock);
  static constexpr std::array<int32_t, 1> kFirstTable{2};
  static constexpr std::array<int32_t, 2> kSecondTable{1, 0};
  static constexpr std::array kSequences{
      kernels::AttentionSequence{.query_begin = 0, .query_count = kPrompt, .context_tokens = 0, .block_table = kFirstTable},
      kernels::AttentionSequence{
          .query_begin = kPrompt, .query_count = kChunk, .context_tokens = kTokens - kChunk, .block_table = kSecondTable}};
  const AttentionParams params{.heads = kHeads,
                               .kv_heads = kKvHeads,
                               .head_dim = kHeadDim,
                               .scale = 0.25F,
                               .softcap = feature.softcap,
                               .sliding_window = feature.sliding_window};
  const Weight sinks = feature.sinks ? run.weight(kHeads) : Weight();
  run.call<WriteKv>(cache, k, v, run.slots(slots));
  run.call<PagedAttention>(params, q, cache, run.ctx().session.place_sequences(kSequences), sinks, out);
  return {out};
}

}  // namespace

Status PagedAttention::conform(Conformance& conformance) {
  for (const Feature& feature : kFeatures) {
    CHORAL_RETURN_IF_ERROR(conformance.check(feature.name, [&](ConformanceRun& run) { return attend(run, feature); }));
  }
  return {};
}

Status WriteKv::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) { return attend(run, Feature{}); });
}

}  // namespace choral::platform::ops
