#include "kernels/fused/expert_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <vector>

namespace choral::kernels {
namespace {

using ::testing::ElementsAre;

class ExpertRowsTest : public ::testing::Test {
 protected:
  Context context(CpuLevel level) { return {pool_, level, arena_}; }

  ThreadPool pool_{2};
  Arena arena_;
};

TEST_F(ExpertRowsTest, RowsOfAnExpertStandTogetherInOrderOfTokens) {
  std::vector<int32_t> ids{2, 0, 0, 3, 2, 3};
  const auto sorted = sort_by_expert({ids.data(), 3, 2}, 5, arena_);
  EXPECT_THAT(sorted.tokens, ElementsAre(0, 1, 0, 2, 1, 2));
  EXPECT_THAT(sorted.ends, ElementsAre(2, 2, 4, 6, 6));
  EXPECT_THAT(sorted.places, ElementsAre(2, 0, 1, 4, 3, 5));
  const auto none = sort_by_expert({ids.data(), 0, 2}, 3, arena_);
  EXPECT_THAT(none.ends, ElementsAre(0, 0, 0));
}

TEST_F(ExpertRowsTest, SlotsAreAddedInTheirOrder) {
  const int64_t tokens = 5, slots = 3;
  for (const int64_t cols : {1, 7, 8, 9, 16, 17, 100}) {
    std::vector<float> x(tokens * slots * cols), weights(tokens * slots), before(tokens * cols);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i)) * 3;
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = std::cos(static_cast<float>(i));
    for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<float>(i) * 0.01f;
    std::vector<int32_t> places;
    for (int32_t i = 0; i < tokens * slots; ++i) places.push_back(i * 7 % 15);
    for (const CpuLevel level : usable_cpu_levels()) {
      const bool fused = level != CpuLevel::kBase || HWY_NATIVE_FMA;  // NEON has it
      for (const bool add : {false, true}) {
        auto y = before;
        combine_experts(context(level), {x.data(), tokens * slots, cols}, places, {weights.data(), tokens, slots}, add,
                        {y.data(), tokens, cols});
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t c = 0; c < cols; ++c) {
            float sum = add ? before[t * cols + c] : 0.0f;
            for (int64_t s = 0; s < slots; ++s) {
              const float w = weights[t * slots + s], value = x[places[t * slots + s] * cols + c];
              sum = fused ? std::fma(w, value, sum) : w * value + sum;
            }
            ASSERT_EQ(y[t * cols + c], sum) << cpu_level_name(level) << " token " << t << " column " << c;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace choral::kernels
