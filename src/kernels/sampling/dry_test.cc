#include "kernels/sampling/dry.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "kernels/ref/sampling.h"

namespace choral::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<std::pair<int32_t, float>> penalties(const std::vector<int32_t>& tokens, const DrySettings& settings,
                                                 const std::vector<DryBreaker>& breakers = {}) {
  Arena arena;
  std::vector<std::pair<int32_t, float>> out;
  for (const auto& each : dry_penalties(tokens, settings, breakers, arena)) out.emplace_back(each.token, each.penalty);
  return out;
}

TEST(Dry, PenalisesWhatWouldGoOnWithARepetition) {
  // "1 2 3" came before, with 4 behind it, and "2 3" with 5.
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 2, 3, 5, 1, 2, 3};
  EXPECT_THAT(penalties(tokens, {.multiplier = 0.5f, .base = 2.0f}), ElementsAre(Pair(4, 1.0f), Pair(5, 0.5f)));
  EXPECT_THAT(penalties(tokens, {.multiplier = 0.5f, .base = 2.0f, .allowed_length = 3}), ElementsAre(Pair(4, 0.5f)));
  EXPECT_THAT(penalties(tokens, {.multiplier = 0.5f, .base = 2.0f, .allowed_length = 4}), IsEmpty());
  EXPECT_THAT(penalties(tokens, {.multiplier = 0.5f, .base = 2.0f, .last_n = 6}), ElementsAre(Pair(5, 0.5f)));
  EXPECT_THAT(penalties(tokens, {.multiplier = 0.5f, .last_n = 0}), IsEmpty());
  EXPECT_THAT(penalties(tokens, {}), IsEmpty()) << "off";
}

TEST(Dry, NoRepetitionGoesOverABreaker) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 9, 1, 2, 3};
  const DrySettings settings{.multiplier = 1.0f, .base = 2.0f, .allowed_length = 1};
  EXPECT_THAT(penalties(tokens, settings), ElementsAre(Pair(4, 4.0f)));
  EXPECT_THAT(penalties(tokens, settings, {{2, {}}}), ElementsAre(Pair(4, 1.0f))) << "3 alone is behind it";
  EXPECT_THAT(penalties(tokens, settings, {{1, {2}}}), ElementsAre(Pair(4, 1.0f))) << "1 2 together";
  EXPECT_THAT(penalties(tokens, settings, {{1, {3}}}), ElementsAre(Pair(4, 4.0f))) << "2 stands between";
  EXPECT_THAT(penalties(tokens, settings, {{3, {}}}), IsEmpty());
  EXPECT_THAT(penalties(tokens, settings, {{4, {}}}), IsEmpty()) << "a breaker itself is free";
}

TEST(Dry, APenaltyStaysFinite) {
  const std::vector<int32_t> tokens(5000, 7);
  const auto got = penalties(tokens, {.multiplier = 100.0f, .base = 100.0f});
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(std::isfinite(got.front().second));
  EXPECT_GT(got.front().second, 1e6f);
}

TEST(Dry, IsWhatTheOracleSays) {
  std::mt19937 random(5);
  const auto below = [&random](uint32_t n) { return static_cast<int32_t>(random() % n); };
  for (int round = 0; round < 3000; ++round) {
    const uint32_t vocab = 1 + static_cast<uint32_t>(below(6));
    std::vector<int32_t> tokens(static_cast<size_t>(below(40)));
    for (auto& t : tokens) t = below(vocab);
    DrySettings settings{.multiplier = 0.8f, .base = 1.75f, .allowed_length = below(4), .last_n = below(50) - 5};
    if (settings.last_n < 0) settings.last_n = -1;
    std::vector<DryBreaker> breakers(static_cast<size_t>(below(3)));
    for (auto& breaker : breakers) {
      breaker.token = below(vocab + 2);
      breaker.rest.resize(static_cast<size_t>(below(3)));
      for (auto& t : breaker.rest) t = below(vocab);
    }
    std::sort(breakers.begin(), breakers.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
    std::vector<double> got(vocab);
    for (const auto& [token, penalty] : penalties(tokens, settings, breakers)) got[static_cast<size_t>(token)] = penalty;
    const auto expected =
        settings.last_n == 0 ? std::vector<double>(vocab) : ref::dry_penalties(tokens, settings, breakers, vocab);
    for (uint32_t t = 0; t < vocab; ++t) {
      ASSERT_NEAR(got[t], std::min(expected[t], 1e9), 1e-5 * (1 + std::min(expected[t], 1e9)))
          << "round " << round << ", token " << t;
    }
  }
}

TEST(Dry, ScratchStopsGrowing) {
  Arena arena;
  std::vector<int32_t> tokens(1000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 50);
  const DrySettings settings{.multiplier = 1.0f};
  const auto run = [&] {
    const Arena::Mark mark(arena);
    return dry_penalties(tokens, settings, {}, arena).size();
  };
  EXPECT_EQ(run(), 1u);
  const int64_t grown = arena.grown();
  for (int i = 0; i < 20; ++i) {
    tokens.push_back(i % 50);
    run();
  }
  EXPECT_EQ(arena.grown(), grown);
}

}  // namespace
}  // namespace choral::kernels
