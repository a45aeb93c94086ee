#include "kernels/norm/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/ref/rms_norm.h"

namespace choral::kernels {
namespace {

constexpr float kEps = 1e-5f;

std::vector<float> random_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> v(count);
  for (float& x : v) x = normal(random);
  return v;
}

// A sum of `count` squares in a few chains, a square root, a division and two products: at most 4 + chain length roundings, all
// relative.
double tolerance(int64_t count, double value) {
  return 0x1p-24 * (6.0 + std::sqrt(static_cast<double>(count))) * std::abs(value) + 1e-37;
}

struct Machine {
  ThreadPool pool;
  Arena arena;
  explicit Machine(int threads) : pool(threads) {}
  Context at(CpuLevel level) { return {pool, level, arena}; }
};

TEST(RmsNormTest, MatchesTheOracleAtEveryWidth) {
  Machine machine(2);
  for (const int64_t cols : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 576, 1000}) {
    const auto x = random_values(5 * cols, 1), w = random_values(cols, 2), some_bias = random_values(cols, 8);
    for (const std::span<const float> bias : {std::span<const float>(), std::span<const float>(some_bias)}) {
      std::vector<float> expected(x.size());
      ref::rms_norm({x.data(), 5, cols}, w, kEps, {expected.data(), 5, cols}, bias);
      for (const CpuLevel level : usable_cpu_levels()) {
        std::vector<float> y(x.size() + 1, 99.0f);
        rms_norm(machine.at(level), {x.data(), 5, cols}, w, kEps, {y.data(), 5, cols}, bias);
        EXPECT_EQ(y.back(), 99.0f) << "wrote past the end";
        y.pop_back();
        for (size_t i = 0; i < y.size(); ++i) {
          // The sum may cancel: the product's roundings are relative to the product.
          const double added = bias.empty() ? 0.0 : bias[i % cols];
          ASSERT_NEAR(y[i], expected[i], tolerance(cols, expected[i]) + tolerance(cols, expected[i] - added))
              << cpu_level_name(level) << ", cols " << cols;
        }
        auto in_place = x;
        rms_norm(machine.at(level), {in_place.data(), 5, cols}, w, kEps, {in_place.data(), 5, cols}, bias);
        EXPECT_EQ(std::memcmp(in_place.data(), y.data(), y.size() * sizeof(float)), 0);
      }
    }
  }
}

TEST(RmsNormTest, FusedAddEqualsAddThenNormThenBiasToTheBit) {
  constexpr int64_t kRows = 70, kCols = 101;
  const auto bias = random_values(kCols, 9);
  const auto x = random_values(kRows * kCols, 3), r = random_values(kRows * kCols, 4), w = random_values(kCols, 5);
  for (const CpuLevel level : usable_cpu_levels()) {
    Machine one(1), two(2);
    std::vector<float> sum(r), expected(r.size()), y(r.size()), residual(r);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
    for (int64_t i = 0; i < kRows; ++i) {  // each row alone
      rms_norm(one.at(level), {sum.data() + i * kCols, 1, kCols}, w, kEps, {expected.data() + i * kCols, 1, kCols});
    }
    add_rms_norm(two.at(level), {x.data(), kRows, kCols}, {residual.data(), kRows, kCols}, w, kEps, {y.data(), kRows, kCols});
    EXPECT_EQ(residual, sum);
    EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0) << cpu_level_name(level);

    auto in_place = x;  // y over x
    residual = r;
    add_rms_norm(two.at(level), {in_place.data(), kRows, kCols}, {residual.data(), kRows, kCols}, w, kEps,
                 {in_place.data(), kRows, kCols});
    EXPECT_EQ(std::memcmp(in_place.data(), expected.data(), y.size() * sizeof(float)), 0);

    residual = r;
    add_rms_norm(two.at(level), {x.data(), kRows, kCols}, {residual.data(), kRows, kCols}, w, kEps, {y.data(), kRows, kCols},
                 bias);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % kCols];
    EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0) << cpu_level_name(level);
  }
}

TEST(RmsNormTest, HeadsAreNormedByThemselvesInsideAWiderRow) {
  constexpr int64_t kTokens = 9, kHeads = 3, kDim = 20, kStride = 100, kColumn = 7;
  const auto x = random_values(kTokens * kStride, 6), w = random_values(kDim, 7);
  for (const CpuLevel level : usable_cpu_levels()) {
    Machine machine(2);
    auto got = x, expected = x;
    rms_norm_heads(machine.at(level), {got.data() + kColumn, kTokens, kHeads * kDim, kStride}, kHeads, w, kEps);
    for (int64_t i = 0; i < kTokens * kHeads; ++i) {
      const MatrixView<float> head(expected.data() + i / kHeads * kStride + kColumn + i % kHeads * kDim, 1, kDim);
      rms_norm(machine.at(level), head, w, kEps, head);
    }
    EXPECT_EQ(got, expected);
  }
}

TEST(RmsNormTest, ZerosStayZerosAndNaNStays) {
  for (const CpuLevel level : usable_cpu_levels()) {
    Machine machine(1);
    std::vector<float> x(40, 0.0f), w(20, 2.0f);
    x[25] = NAN;
    rms_norm(machine.at(level), {x.data(), 2, 20}, w, kEps, {x.data(), 2, 20});
    for (int i = 0; i < 20; ++i) EXPECT_EQ(x[i], 0.0f);
    for (int i = 20; i < 40; ++i) EXPECT_TRUE(std::isnan(x[i]));
  }
}

}  // namespace
}  // namespace choral::kernels
