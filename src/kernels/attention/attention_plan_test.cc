// Whether attention keeps many threads busy: by the arithmetic that cuts it, for the models that people serve and more threads
// than any machine of tests has.
#include "kernels/attention/attention_plan.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace choral::kernels {
namespace {

constexpr double kEven = 1.15;

struct Heads {
  const char* model;
  int64_t heads, kv_heads;
};
constexpr Heads kModels[] = {{"SmolLM2-135M", 9, 3},   {"Llama-3.2-1B", 32, 8},  {"Llama-3.1-8B", 32, 8},
                             {"Llama-3.3-70B", 64, 8}, {"Qwen3-30B-A3B", 32, 4}, {"DeepSeek-V2-Lite", 16, 1}};

// Rows of each sequence and the tokens before them.
struct Step {
  const char* name;
  std::vector<AttentionSequence> sequences;
};

AttentionSequence sequence(int64_t begin, int64_t rows, int64_t before) {
  return {.query_begin = begin, .query_count = rows, .context_tokens = before, .block_table = {}};
}
std::vector<AttentionSequence> answers(int64_t count, int64_t before) {
  std::vector<AttentionSequence> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(sequence(i, 1, before));
  return all;
}

// Of each piece of work in the order in which threads take it.
std::vector<int64_t> costs(const AttentionPlan& plan, const AttentionSplit& split) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < plan.tiles(); ++i) {
    const AttentionTile tile = plan.tile(i);
    if (!split.has(i)) all.push_back(tile.rows() * (tile.key_end() - tile.key_begin()));
  }
  for (int64_t n = 0; n < split.waves(); ++n) {
    for (int64_t i = 0; i < split.count(); ++i) {
      const AttentionTile tile = plan.tile(split.tile(i));
      for (int64_t range = split.ranges(tile, n).begin; range < split.ranges(tile, n).end; ++range) {
        const int64_t begin = std::max(range * kAttentionRangeTokens, tile.key_begin());
        all.push_back(tile.rows() * (std::min((range + 1) * kAttentionRangeTokens, tile.key_end()) - begin));
      }
    }
  }
  return all;
}

// The busiest thread's work, when whoever is free takes the next piece, as a share of the mean.
double busiest(const std::vector<int64_t>& pieces, int threads) {
  std::vector<int64_t> busy(static_cast<size_t>(threads));
  for (const int64_t piece : pieces) *std::min_element(busy.begin(), busy.end()) += piece;
  const double mean = static_cast<double>(std::accumulate(pieces.begin(), pieces.end(), int64_t{0})) / threads;
  return static_cast<double>(*std::max_element(busy.begin(), busy.end())) / mean;
}

// A range of 1,024 tokens is not divided, since its sums are in one order: fewer than some seven of them a thread may not go up
// evenly, and heads of keys that are cut for want of ranges are cut into whole query heads.
TEST(AttentionPlan, KeepsThreadsBusy) {
  const Step steps[] = {{"1 answer behind 32k", answers(1, 32000)},         {"32 answers behind 2k", answers(32, 2000)},
                        {"128 answers behind 300", answers(128, 300)},      {"a prompt of 512", {sequence(0, 512, 0)}},
                        {"512 rows behind 32k", {sequence(0, 512, 32000)}}, {"a prompt of 2,048 beside 32 answers", {}}};
  for (const Heads& model : kModels) {
    for (Step step : steps) {
      if (step.sequences.empty()) {
        step.sequences = answers(32, 1000);
        step.sequences.push_back(sequence(32, 2048, 0));
      }
      for (const int threads : {1, 2, 3, 8, 16, 32, 64, 96, 128}) {
        const auto what = fmt::format("{}, {}, {} threads", model.model, step.name, threads);
        const AttentionParams params{.heads = model.heads, .kv_heads = model.kv_heads, .head_dim = 128};
        const KvCacheView cache{};
        std::vector<int64_t> first_tile(step.sequences.size() + 1), divided(AttentionSplit::kPartsOfShare * threads);
        const AttentionPlan plan(params, cache, {}, {}, step.sequences, first_tile, threads);
        const int64_t states = threads > 1 ? int64_t{8} * threads : 0;  // at the least: tiles of fewer rows have more
        const AttentionSplit split(plan, threads, states, divided);
        const auto pieces = costs(plan, split);
        const int64_t total = std::accumulate(pieces.begin(), pieces.end(), int64_t{0});
        const int64_t largest = *std::max_element(pieces.begin(), pieces.end());
        int64_t wanted = 0;  // rows · keys
        for (const auto& s : step.sequences) {
          for (int64_t row = 0; row < s.query_count; ++row) wanted += model.heads * (s.context_tokens + row + 1);
        }
        EXPECT_GE(total, wanted) << what;  // a tile's last row sees more than its first
        // No better order of these pieces would help where they are few or one is large.
        const double mean = static_cast<double>(total) / threads;
        const double best =
            std::max(static_cast<double>(largest) / mean,
                     static_cast<double>(ceil_div(std::ssize(pieces), threads) * threads) / static_cast<double>(pieces.size()));
        const bool few = 7.0 * static_cast<double>(largest) > mean;
        EXPECT_LE(busiest(pieces, threads), few ? best * kEven : kEven) << what;
      }
    }
  }
}

}  // namespace
}  // namespace choral::kernels
