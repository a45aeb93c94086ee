#include "kernels/sampling/logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace choral::kernels {
namespace {

class LogitsTest : public ::testing::Test {
 protected:
  std::vector<float> capped(CpuLevel level, std::vector<float> x, int64_t rows, float cap) {
    soft_cap({pool_, level, arena_}, {x.data(), rows, std::ssize(x) / rows}, cap);
    return x;
  }

  ThreadPool pool_{2};
  Arena arena_;
};

TEST_F(LogitsTest, SoftCapMatchesTheDefinitionOverTheRange) {
  std::vector<float> x{0.0f, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  for (int i = -30000; i <= 30000; ++i) x.push_back(static_cast<float>(i) * 0.003f);
  for (int e = -100; e <= 100; ++e) x.push_back(std::ldexp(1.7f, e)), x.push_back(-x.back());
  for (const float cap : {0.5f, 6.0f, 30.0f}) {
    for (const CpuLevel level : usable_cpu_levels()) {
      const auto y = capped(level, x, 1, cap);
      for (size_t i = 0; i < x.size(); ++i) {
        const double expected = cap * std::tanh(static_cast<double>(x[i]) / cap);
        // tanh, the division and the product: 4 ulp.
        ASSERT_NEAR(y[i], expected, 4 * 0x1p-23 * std::abs(expected)) << cpu_level_name(level) << ", x = " << x[i];
      }
    }
  }
}

TEST_F(LogitsTest, AnElementDoesNotKnowItsIndex) {
  for (const int64_t cols : {1, 3, 7, 8, 9, 15, 16, 17, 33, 2049}) {
    std::vector<float> x(3 * cols);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i)) * 20.0f;
    for (const CpuLevel level : usable_cpu_levels()) {
      const auto y = capped(level, x, 3, 6.0f);
      auto scaled = x;
      scale_rows({pool_, level, arena_}, {scaled.data(), 3, cols}, 1.7f);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(y[i], capped(level, {x[i]}, 1, 6.0f)[0]) << cpu_level_name(level) << i;
        ASSERT_EQ(scaled[i], x[i] * 1.7f) << cpu_level_name(level) << i;
      }
    }
  }
}

TEST_F(LogitsTest, NanStaysNan) {
  for (const CpuLevel level : usable_cpu_levels()) {
    const auto y = capped(level, {1.0f, std::numeric_limits<float>::quiet_NaN(), 2.0f}, 1, 6.0f);
    EXPECT_TRUE(std::isnan(y[1]) && !std::isnan(y[0]) && !std::isnan(y[2]));
  }
}

}  // namespace
}  // namespace choral::kernels
