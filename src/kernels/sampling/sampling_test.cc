#include "kernels/sampling/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/ref/sampling.h"

namespace choral::kernels {
namespace {

using testing::ElementsAre;
constexpr float kNever = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(size_t vocab, uint32_t seed, float spread = 4.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> v(vocab);
  for (float& x : v) x = normal(random);
  return v;
}

TEST(SamplingTest, ArgmaxTakesTheFirstOfEquals) {
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const size_t vocab : {1, 2, 15, 16, 17, 31, 33, 1000}) {
      for (size_t at = 0; at < vocab; at += 7) {
        std::vector<float> x(vocab, -kNever);
        x[at] = -3.0f;
        if (at + 5 < vocab) x[at + 5] = -3.0f;
        EXPECT_EQ(*argmax_token(level, x), static_cast<int32_t>(at)) << cpu_level_name(level) << ", vocab " << vocab;
      }
    }
  }
}

TEST(SamplingTest, ABrokenRowIsAnErrorWhereverItBreaks) {
  Arena arena;
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const size_t vocab : {1, 16, 17, 40}) {
      for (size_t at = 0; at < vocab; ++at) {
        auto x = random_logits(vocab, 1);
        x[at] = NAN;
        EXPECT_EQ(argmax_token(level, x).status().code(), Code::kInternal);
        EXPECT_EQ(sample_token(level, x, {}, 0.5, arena).status().code(), Code::kInternal);
        EXPECT_TRUE(std::isnan(log_sum_exp(level, x)));
        x[at] = kNever;
        EXPECT_EQ(argmax_token(level, x).status().code(), Code::kInternal);
      }
      const std::vector<float> removed(vocab, -kNever);
      EXPECT_EQ(argmax_token(level, removed).status().code(), Code::kInvalidArgument);
      EXPECT_EQ(log_sum_exp(level, removed), -kNever);
    }
    EXPECT_FALSE(argmax_token(level, {}).ok());
  }
}

// Walks the oracle's distribution in the order of ids: what the kernel must draw, unless `uniform` is within rounding of a
// border.
void expect_draws(CpuLevel level, std::span<const float> logits, const SamplingSettings& s) {
  Arena arena;
  const auto p = ref::probabilities(logits, s);
  const size_t step = p.size() / 40 + 1;  // of the tokens with weight, some
  double below = 0.0;
  size_t seen = 0;
  for (size_t t = 0; t < p.size(); ++t) {
    if (p[t] > 1e-4 && seen++ % step == 0) {
      const auto got = sample_token(level, logits, s, below + p[t] / 2, arena);
      ASSERT_TRUE(got.ok());
      ASSERT_EQ(*got, static_cast<int32_t>(t))
          << cpu_level_name(level) << ", T " << s.temperature << ", k " << s.top_k << ", p " << s.top_p << ", min_p " << s.min_p
          << ", sigma " << s.top_n_sigma << ", typical " << s.typical_p << ", xtc " << s.xtc_threshold;
    }
    below += p[t];
  }
  const auto last = sample_token(level, logits, s, 1.0 - 0x1p-53, arena);
  ASSERT_TRUE(last.ok());
  EXPECT_GT(p[*last], 0.0) << "the end of the range is a token that was kept";
}

TEST(SamplingTest, DrawsFollowTheOraclesDistribution) {
  const std::vector<SamplingSettings> settings = {
      {},
      {.temperature = 0.3f},
      {.temperature = 5.0f},
      {.top_k = 1},
      {.top_k = 7},
      {.top_k = 100000},
      {.top_p = 0.5f},
      {.top_p = 0.0f},
      {.top_p = 0.999f},
      {.min_p = 0.1f},
      {.min_p = 1.0f},
      {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f},
      {.temperature = 1.5f, .top_k = 40, .top_p = 0.9f, .min_p = 0.05f},
      {.temperature = 100.0f, .top_k = 300, .top_p = 0.7f},
      {.top_n_sigma = 1.0f},
      {.temperature = 3.0f, .top_n_sigma = 2.0f},
      {.typical_p = 0.0f},
      {.typical_p = 0.6f},
      {.temperature = 0.4f, .typical_p = 0.9f},
      {.temperature = 2.0f, .typical_p = 0.999f},
      {.xtc_threshold = 0.0f},
      {.xtc_threshold = 0.01f},
      {.temperature = 0.05f, .xtc_threshold = 0.05f},
      {.temperature = 4.0f, .xtc_threshold = 0.5f},
      {.temperature = 0.7f,
       .top_k = 30,
       .top_p = 0.9f,
       .min_p = 0.01f,
       .top_n_sigma = 2.5f,
       .typical_p = 0.8f,
       .xtc_threshold = 0.1f},
  };
  for (const CpuLevel level : usable_cpu_levels()) {
    if (level > CpuLevel::kAvx512) break;
    for (const size_t vocab : {1, 5, 33, 700, 2503}) {
      for (const float spread : {0.001f, 1.0f, 6.0f}) {
        auto logits = random_logits(vocab, static_cast<uint32_t>(vocab), spread);
        for (size_t i = 3; i < vocab; i += 11) logits[i] = -kNever;
        for (const auto& s : settings) expect_draws(level, logits, s);
      }
    }
  }
}

TEST(SamplingTest, TiesAtTheBordersOfTopKAndTopP) {
  Arena arena;
  const std::vector<float> logits = {1, 2, 2, 2, 0};
  for (const CpuLevel level : usable_cpu_levels()) {
    const auto reached = [&](const SamplingSettings& s) {
      std::vector<int32_t> tokens;
      for (double u = 0.0; u < 1.0; u += 0.01) {
        const int32_t t = *sample_token(level, logits, s, u, arena);
        if (tokens.empty() || tokens.back() != t) tokens.push_back(t);
      }
      return tokens;
    };
    EXPECT_THAT(reached({.top_k = 2}), ElementsAre(1, 2, 3)) << "tokens equal to the k-th stay";
    EXPECT_THAT(reached({.top_k = 4}), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(reached({.top_k = 3, .top_p = 0.5f}), ElementsAre(1, 2)) << "1/3, then 2/3 >= 0.5: the lower ids";
    EXPECT_THAT(reached({.top_p = 1e-6f}), ElementsAre(1));
    EXPECT_THAT(reached({.temperature = 0.0f}), ElementsAre(1));
  }
}

std::vector<int32_t> drawn(const std::vector<float>& logits, const SamplingSettings& s) {
  Arena arena;
  std::vector<int32_t> tokens;
  for (double u = 0.0; u < 1.0; u += 0.001) {
    const int32_t t = *sample_token(cpu_level(), logits, s, u, arena);
    if (std::find(tokens.begin(), tokens.end(), t) == tokens.end()) tokens.push_back(t);
  }
  return tokens;
}

TEST(SamplingTest, XtcLeavesTheLeastLikelyOfThoseAboveItsThreshold) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.25f), std::log(0.15f), std::log(0.06f), std::log(0.04f)};
  EXPECT_THAT(drawn(logits, {.xtc_threshold = 0.1f}), ElementsAre(2, 3, 4));
  EXPECT_THAT(drawn(logits, {.xtc_threshold = 0.3f}), ElementsAre(0, 1, 2, 3, 4)) << "it is alone there";
  EXPECT_THAT(drawn(logits, {.xtc_threshold = 0.51f}), ElementsAre(0, 1, 2, 3, 4)) << "off";
  EXPECT_THAT(drawn(logits, {.temperature = 9.0f, .xtc_threshold = 0.2f}), ElementsAre(1, 2, 3, 4)) << "before temperature";
  EXPECT_THAT(drawn(logits, {.top_p = 0.7f, .xtc_threshold = 0.1f}), ElementsAre(1)) << "behind top_p, which leaves 0 and 1";
  EXPECT_THAT(drawn(logits, {.temperature = 0.01f, .xtc_threshold = 0.1f}), ElementsAre(2)) << "weights of what is left";
  EXPECT_THAT(drawn({1, 1, 1}, {.xtc_threshold = 0.2f}), ElementsAre(2)) << "equals: the lower id is the likelier";
}

TEST(SamplingTest, TypicalTokensAreThoseOfAverageSurprise) {
  // The entropy is 1.3 nats: 0.3 is nearest, then 0.2, 0.1, 0.4.
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  EXPECT_THAT(drawn(logits, {.typical_p = 0.0f}), ElementsAre(1));
  EXPECT_THAT(drawn(logits, {.typical_p = 0.29f}), ElementsAre(1));
  EXPECT_THAT(drawn(logits, {.typical_p = 0.4f}), ElementsAre(1, 2));
  EXPECT_THAT(drawn(logits, {.temperature = 20.0f, .typical_p = 0.4f}), ElementsAre(1, 2)) << "before temperature";
  EXPECT_THAT(drawn(logits, {.typical_p = 1.0f}), ElementsAre(0, 1, 2, 3));
}

TEST(SamplingTest, SigmasAreCountedOverWhatIsNotRemoved) {
  // The mean is 0 and σ is 2.
  const std::vector<float> logits = {2, -2, 2, -2, -kNever};
  EXPECT_THAT(drawn(logits, {.top_n_sigma = 1.9f}), ElementsAre(0, 2));
  EXPECT_THAT(drawn(logits, {.top_n_sigma = 2.1f}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(drawn(logits, {.temperature = 50.0f, .top_n_sigma = 1.9f}), ElementsAre(0, 2)) << "whatever the temperature";
  EXPECT_THAT(drawn(logits, {.top_n_sigma = -1.0f}), ElementsAre(0, 1, 2, 3)) << "off";
  EXPECT_THAT(drawn({7}, {.top_n_sigma = 0.5f}), ElementsAre(0));
}

TEST(SamplingTest, ScratchIsGivenBackAndStopsGrowing) {
  Arena arena;
  const auto logits = random_logits(20000, 3, 0.001f);
  const SamplingSettings s{.top_k = 9000, .top_p = 0.9f, .typical_p = 0.9f, .xtc_threshold = 0.0f};
  ASSERT_TRUE(sample_token(cpu_level(), logits, s, 0.3, arena).ok());
  const int64_t grown = arena.grown();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(sample_token(cpu_level(), logits, s, 0.1 * i, arena).ok());
  EXPECT_EQ(arena.grown(), grown);
}

TEST(SamplingTest, LogSumExpAndTopLogprobs) {
  for (const size_t vocab : {1, 17, 300, 49152}) {
    auto logits = random_logits(vocab, 5);
    if (vocab > 100) logits[40] = logits[60] = 30.0f, logits[70] = -kNever;
    const double expected = ref::log_sum_exp(logits);
    std::vector<int32_t> order(vocab);
    for (size_t i = 0; i < vocab; ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (const CpuLevel level : usable_cpu_levels()) {
      const double lse = log_sum_exp(level, logits);
      EXPECT_NEAR(lse, expected, 1e-6) << cpu_level_name(level);
      std::vector<TokenLogprob> top(20);
      const int64_t n = top_logprobs(level, logits, lse, top);
      ASSERT_EQ(n, std::min<int64_t>(20, static_cast<int64_t>(vocab)));
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(top[i].token, order[i]) << "rank " << i;
        EXPECT_NEAR(top[i].logprob, logits[order[i]] - expected, 1e-5);
      }
    }
  }
}

TEST(SamplingTest, PenaltiesAsVllm) {
  Arena arena;
  std::vector<float> logits = {2.0f, -2.0f, 1.0f, 4.0f, -kNever, 0.5f};
  const int32_t prompt[] = {0, 1, 0, 99, -5}, output[] = {3, 1, 3, 3, 4};
  apply_penalties(logits, prompt, output, {.repetition = 2.0f, .frequency = 0.25f, .presence = 0.125f}, arena);
  EXPECT_THAT(logits, ElementsAre(1.0f,                              // in the prompt: repetition only, once
                                  -4.0f - 0.25f - 0.125f,            // negative: multiplied; once in the output
                                  1.0f,                              // in neither
                                  4.0f / 2.0f - 3 * 0.25f - 0.125f,  // three times in the output
                                  -kNever, 0.5f));
  std::vector<float> untouched = {1.0f, 2.0f};
  apply_penalties(untouched, prompt, output, {}, arena);
  EXPECT_THAT(untouched, ElementsAre(1.0f, 2.0f));
}

TEST(SamplingTest, BiasBansAndMasks) {
  Arena arena;
  std::vector<float> logits = {0, 1, 2, 3};
  const TokenBias bias[] = {{1, 10.0f}, {7, 1.0f}, {-1, 1.0f}};
  add_logit_bias(logits, bias);
  const int32_t banned[] = {2, 4};
  ban_tokens(logits, banned);
  EXPECT_THAT(logits, ElementsAre(0, 11, -kNever, 3));
  const int32_t allowed[] = {3, 2, 3, 900};
  allow_only_tokens(logits, allowed, arena);
  EXPECT_THAT(logits, ElementsAre(-kNever, -kNever, -kNever, 3));

  std::vector<float> row(70, 1.0f);
  const uint32_t mask[] = {0xFFFFFFFFu, 1u << 5};  // the third word is missing: nothing there is allowed
  apply_token_mask(row, mask);
  for (int i = 0; i < 70; ++i) EXPECT_EQ(row[i], i < 32 || i == 37 ? 1.0f : -kNever) << i;
}

TEST(SamplingTest, RandomNumbersAreAFunctionOfTheirKey) {
  // Random123's known answers for philox4x32-10: zero key and counter give 6627e8d5 e169c58d …
  EXPECT_EQ(random_uniform(0, 0), static_cast<double>(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
  EXPECT_NE(random_uniform(0, 0), random_uniform(0, 1));
  EXPECT_NE(random_uniform(0, 0), random_uniform(1, 0));
  EXPECT_NE(random_uniform(0, 0), random_uniform(0, 0, 1));
  EXPECT_NE(random_uniform(0, 0), random_uniform(uint64_t{1} << 32, 0));
  EXPECT_NE(random_uniform(0, 0), random_uniform(0, uint64_t{1} << 32));
  double mean = 0.0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const double u = random_uniform(42, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    mean += u / 10000;
  }
  EXPECT_NEAR(mean, 0.5, 0.02);  // seven standard deviations
}

}  // namespace
}  // namespace choral::kernels
