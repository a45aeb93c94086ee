#include "kernels/fused/moe_gating.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/ref/moe_gating.h"

namespace choral::kernels {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsNan;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Choice {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

class MoeGatingTest : public testing::TestWithParam<CpuLevel> {
 protected:
  Choice choose(MatrixView<const float> logits, const MoeGating& gating) {
    Choice out{std::vector<int32_t>(logits.rows * gating.top_k), std::vector<float>(logits.rows * gating.top_k)};
    moe_gating_top_k({pool_, GetParam(), arena_}, logits, gating, {out.ids.data(), logits.rows, gating.top_k},
                     {out.weights.data(), logits.rows, gating.top_k});
    return out;
  }
  Choice choose(const std::vector<float>& row, const MoeGating& gating) {
    return choose({row.data(), 1, std::ssize(row)}, gating);
  }

  ThreadPool pool_{2};
  Arena arena_;
};
INSTANTIATE_TEST_SUITE_P(Levels, MoeGatingTest, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& tested) { return std::string(cpu_level_name(tested.param)); });

struct Router {
  int64_t experts;
  MoeGating gating;
  bool biased;
  bool scaled = false;
};

TEST_P(MoeGatingTest, ChoosesAndWeighsAsTheOracle) {
  const Router routers[] = {
      {1, {}, false},
      {7, {.top_k = 3}, false},
      {8, {.top_k = 2, .renormalise = true}, false},                                      // Mixtral
      {60, {.top_k = 4}, false},                                                          // Qwen2-MoE
      {160, {.groups = 8, .top_groups = 3, .top_k = 6, .routed_scaling = 16.0f}, false},  // DeepSeek-V2
      {256,                                                                               // DeepSeek-V3
       {.scoring = GateScoring::kSigmoid,
        .groups = 8,
        .top_groups = 4,
        .group_score = GroupScore::kTopTwoSum,
        .top_k = 8,
        .renormalise = true,
        .routed_scaling = 2.5f},
       true},
      {66,
       {.scoring = GateScoring::kSigmoid, .groups = 33, .top_groups = 5, .group_score = GroupScore::kTopTwoSum, .top_k = 10},
       true},
      {129, {.scoring = GateScoring::kSigmoid, .top_k = 129, .renormalise = true}, true},
      {33, {.groups = 3, .top_groups = 2, .top_k = 22, .renormalise = true}, true},
      {128, {.top_k = 8, .renormalise = true}, false, true},                             // Gemma 4
      {16, {.scoring = GateScoring::kSparseMixer, .top_k = 2, .jitter = 0.01f}, false},  // PhiMoE
      {37, {.scoring = GateScoring::kSparseMixer, .top_k = 3, .jitter = 0.2f}, false},
  };
  for (const Router& router : routers) {
    const int64_t rows = 70;
    auto logits = gaussian(rows * router.experts, 1);
    for (float& x : logits) x *= 3.0f;
    auto bias = gaussian(router.experts, 2);
    MoeGating gating = router.gating;
    if (router.biased) gating.selection_bias = bias;
    if (router.scaled) gating.expert_scale = bias;
    const Choice got = choose({logits.data(), rows, router.experts}, gating);
    int64_t undecided = 0;
    for (int64_t t = 0; t < rows; ++t) {
      const auto expected =
          ref::moe_gating_row({logits.data() + t * router.experts, static_cast<size_t>(router.experts)}, gating);
      // A score is within a few ulp of 1 of the oracle's, and group scores are sums of two with bias.
      if (expected.gap < 0x1p-20) {
        ++undecided;
        continue;
      }
      for (int64_t i = 0; i < gating.top_k; ++i) {
        ASSERT_EQ(got.ids[t * gating.top_k + i], expected.ids[i]) << router.experts << " experts, row " << t << ", place " << i;
        ASSERT_NEAR(got.weights[t * gating.top_k + i], expected.weights[i], 0x1p-19 * std::abs(expected.weights[i]));
      }
    }
    EXPECT_LE(undecided, gating.top_k < 20 ? rows / 10 : rows) << router.experts;
  }
}

TEST_P(MoeGatingTest, TheBiasChoosesButDoesNotWeigh) {
  const std::vector<float> logits{2.0f, 1.0f, 0.0f, -1.0f}, bias{-5.0f, 0.0f, 0.0f, 5.0f};
  const auto got = choose(logits, {.scoring = GateScoring::kSigmoid, .selection_bias = bias, .top_k = 2});
  EXPECT_THAT(got.ids, ElementsAre(3, 1));
  EXPECT_NEAR(got.weights[0], 1.0 / (1.0 + std::exp(1.0)), 1e-7);
  EXPECT_NEAR(got.weights[1], 1.0 / (1.0 + std::exp(-1.0)), 1e-7);
}

// With biased selections below 0 a group that is out must not come back as one set to 0 would.
TEST_P(MoeGatingTest, AGroupThatIsOutStaysOut) {
  const std::vector<float> logits{3.0f, 3.0f, 2.0f, 2.0f, 9.0f, -9.0f}, bias(6, -2.0f);
  const MoeGating by_two{.scoring = GateScoring::kSigmoid,
                         .selection_bias = bias,
                         .groups = 3,
                         .top_groups = 1,
                         .group_score = GroupScore::kTopTwoSum,
                         .top_k = 2};
  EXPECT_THAT(choose(logits, by_two).ids, ElementsAre(0, 1));
  MoeGating by_max = by_two;
  by_max.group_score = GroupScore::kMax;
  EXPECT_THAT(choose(logits, by_max).ids, ElementsAre(4, 5));
}

TEST_P(MoeGatingTest, TiesGoToTheLowerIndex) {
  for (const GateScoring scoring : {GateScoring::kSoftmax, GateScoring::kSigmoid}) {
    for (const int64_t experts : {6, 18, 36, 258}) {  // in whole vectors and in tails
      std::vector<float> logits(experts, 0.25f);
      EXPECT_THAT(choose(logits, {.scoring = scoring, .top_k = 4}).ids, ElementsAre(0, 1, 2, 3));
      logits[experts - 1] = logits[experts / 2] = 1.0f;
      EXPECT_THAT(choose(logits, {.scoring = scoring, .top_k = 4}).ids, ElementsAre(experts / 2, experts - 1, 0, 1));
      // Groups of equal score: the first ones; the best expert of a later one comes first.
      const MoeGating grouped{.scoring = scoring, .groups = 3, .top_groups = 2, .group_score = GroupScore::kMax, .top_k = 3};
      EXPECT_THAT(choose(std::vector<float>(experts, -1.0f), grouped).ids, ElementsAre(0, 1, 2));
      logits.assign(experts, 0.25f);
      logits[experts - 2] = 2.0f;
      EXPECT_THAT(choose(logits, grouped).ids, ElementsAre(experts - 2, 0, 1));
    }
  }
}

// Of logits whose sigmoids are 1 alike the larger one comes first.
TEST_P(MoeGatingTest, ASigmoidIsRankedByItsLogits) {
  const auto got = choose({30.0f, 50.0f, -1.0f, 40.0f}, {.scoring = GateScoring::kSigmoid, .top_k = 2});
  EXPECT_THAT(got.ids, ElementsAre(1, 3));
  EXPECT_THAT(got.weights, Each(1.0f));
}

// The first sees both that are near it, of either sign; the second does not see the first; what is far counts for neither.
TEST_P(MoeGatingTest, AMixersShareIsOfWhatIsNear) {
  const auto mixed = [this](const std::vector<float>& logits) {
    return choose(logits, {.scoring = GateScoring::kSparseMixer, .top_k = 2, .jitter = 0.05f});
  };
  const auto near_both = mixed({9.5f, 10.0f, 5.0f, 9.2f});
  EXPECT_THAT(near_both.ids, ElementsAre(1, 0));
  EXPECT_NEAR(near_both.weights[0], 1.0 / (1.0 + std::exp(-0.5) + std::exp(-0.8)), 1e-6);
  EXPECT_NEAR(near_both.weights[1], 1.0 / (1.0 + std::exp(-0.3)), 1e-6);
  const auto below_zero = mixed({-9.5f, -9.0f, -20.0f, -9.9f});
  EXPECT_THAT(below_zero.ids, ElementsAre(1, 0));
  EXPECT_NEAR(below_zero.weights[0], 1.0 / (1.0 + std::exp(-0.5) + std::exp(-0.9)), 1e-6);
  EXPECT_THAT(mixed({1.0f, 3.0f, 2.0f}).weights, Each(1.0f));
  EXPECT_THAT(mixed({0.0f, 0.0f}).weights, ElementsAre(0.5f, 1.0f)) << "no distance at all, of nothing";
}

TEST_P(MoeGatingTest, RenormalisedWeightsSumToTheScaling) {
  const auto logits = gaussian(40 * 64, 5);
  const auto got = choose({logits.data(), 40, 64}, {.top_k = 6, .renormalise = true, .routed_scaling = 2.5f});
  for (int64_t t = 0; t < 40; ++t) {
    double sum = 0.0;
    for (int64_t i = 0; i < 6; ++i) sum += got.weights[t * 6 + i];
    EXPECT_NEAR(sum, 2.5, 2e-6);
  }
  // Nothing to divide by: not NaN.
  const auto none =
      choose(std::vector<float>(8, -kInfinity), {.scoring = GateScoring::kSigmoid, .top_k = 2, .renormalise = true});
  EXPECT_THAT(none.weights, Each(0.0f));
}

TEST_P(MoeGatingTest, RowsThatAreNotNumbersKeepValidIds) {
  const std::vector<float> bias(37, 0.5f);
  for (const GateScoring scoring : {GateScoring::kSoftmax, GateScoring::kSigmoid}) {
    for (const float bad : {NAN, -NAN, kInfinity, -kInfinity}) {
      for (const int at : {0, 20, 36}) {
        auto logits = gaussian(3 * 37, 6);
        logits[37 + at] = bad;
        const auto got = choose({logits.data(), 3, 37}, {.scoring = scoring, .selection_bias = bias, .top_k = 3});
        const std::vector<float> weights(got.weights.begin() + 3, got.weights.begin() + 6);
        const std::vector<int32_t> ids(got.ids.begin() + 3, got.ids.begin() + 6);
        if (std::isnan(bad) || (scoring == GateScoring::kSoftmax && bad > 0)) {
          EXPECT_THAT(weights, Each(IsNan()));
          EXPECT_THAT(ids, ElementsAre(0, 1, 2));
        } else {
          EXPECT_THAT(weights, Each(testing::Gt(0.0f)));
          EXPECT_EQ(ids[0] == at, bad > 0);
        }
        for (const int64_t t : {0, 2}) {
          for (int i = 0; i < 3; ++i) EXPECT_GT(got.weights[t * 3 + i], 0.0f);
        }
      }
    }
  }
  EXPECT_THAT(choose(std::vector<float>(20, -kInfinity), {.top_k = 2}).weights, Each(IsNan()));
  const MoeGating mixer{.scoring = GateScoring::kSparseMixer, .top_k = 2, .jitter = 0.01f};
  for (const auto& row : {std::vector<float>{1, NAN, 2}, {1, kInfinity, 2}, {-kInfinity, -kInfinity, 2}}) {
    const auto got = choose(row, mixer);
    EXPECT_THAT(got.ids, ElementsAre(0, 1));
    EXPECT_THAT(got.weights, Each(IsNan()));
  }
}

TEST_P(MoeGatingTest, ARowIsByItself) {
  const auto logits = gaussian(50 * 100, 7);
  const MoeGating gating{.groups = 4, .top_groups = 2, .top_k = 8, .renormalise = true};
  const auto all = choose({logits.data(), 50, 96, 100}, gating);
  for (int64_t t = 0; t < 50; ++t) {
    const auto alone = choose({logits.data() + t * 100, 1, 96}, gating);
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(all.ids[t * 8 + i], alone.ids[i]);
      EXPECT_EQ(all.weights[t * 8 + i], alone.weights[i]);
    }
  }
}

}  // namespace
}  // namespace choral::kernels
