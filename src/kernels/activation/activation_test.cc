#include "kernels/activation/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/ref/activation.h"

namespace choral::kernels {
namespace {

constexpr Activation kAll[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kSigmoid};

struct Machine {
  ThreadPool pool{2};
  Arena arena;
  Context at(CpuLevel level) { return {pool, level, arena}; }
};

// f of each value, by the kernel with up = 1.
std::vector<float> apply(const Context& ctx, Activation f, std::vector<float> x) {
  const std::vector<float> ones(x.size(), 1.0f);
  const auto n = std::ssize(x);
  activation_and_mul(ctx, f, {x.data(), 1, n}, {ones.data(), 1, n}, {x.data(), 1, n});
  return x;
}

TEST(ActivationTest, MatchesTheDefinitionOverTheRange) {
  std::vector<float> x;
  for (float a = -30.0f; a <= 30.0f; a += 0.0007f) x.push_back(a);
  for (float a = 1e-30f; a < 1e30f; a *= 1.7f) x.push_back(a), x.push_back(-a);
  Machine machine;
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const Activation f : kAll) {
      const auto y = apply(machine.at(level), f, x);
      for (size_t i = 0; i < x.size(); ++i) {
        const double expected = ref::activation(f, x[i]);
        // e^t, 1 + e, the division: 4 ulp; and e^t is relatively as wrong as t is absolutely, t = -2u or -x²/2 in the negative
        // tail.
        const bool exact = f == Activation::kSilu || f == Activation::kSigmoid;
        const double t = exact                    ? 0.0
                         : f == Activation::kGelu ? 0.5 * x[i] * x[i]
                                                  : std::abs(1.6 * x[i] + 0.0714 * std::pow(x[i], 3));
        const double relative = 0x1p-23 * (4.0 + (x[i] < 0 && !exact ? 3.0 * std::min(t, 100.0) : 0.0));
        ASSERT_NEAR(y[i], expected, relative * std::abs(expected) + 2e-37) << cpu_level_name(level) << ", x = " << x[i];
      }
    }
  }
}

TEST(ActivationTest, AnElementDoesNotKnowItsIndex) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  Machine machine;
  for (const int64_t inter : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 2049}) {
    std::vector<float> x(6 * inter);  // three tokens
    for (float& a : x) a = normal(random);
    for (const CpuLevel level : usable_cpu_levels()) {
      for (const Activation f : kAll) {
        std::vector<float> y(3 * inter + 1, 99.0f), expected(3 * inter);
        activation_and_mul(machine.at(level), f, {x.data(), 3, 2 * inter}, {y.data(), 3, inter});
        EXPECT_EQ(y.back(), 99.0f) << "wrote past the end";
        ref::activation_and_mul(f, {x.data(), 3, 2 * inter}, {expected.data(), 3, inter});
        for (int64_t i = 0; i < 3 * inter; ++i) {
          const float gate = x[i / inter * 2 * inter + i % inter], up = x[i / inter * 2 * inter + inter + i % inter];
          if (i % 37 != 0 && inter - i % inter > 17 && inter > 64) continue;  // of a long row some, and its tail
          float alone;
          activation_and_mul(machine.at(level), f, {&gate, 1, 1}, {&up, 1, 1}, {&alone, 1, 1});
          ASSERT_EQ(y[i], alone) << cpu_level_name(level) << ", inter " << inter << ", element " << i;
          ASSERT_NEAR(y[i], expected[i], 0x1p-20 * std::abs(expected[i]) + 1e-7);
        }
        auto in_place = x;
        activation_and_mul(machine.at(level), f, {in_place.data(), 3, 2 * inter}, {in_place.data(), 3, inter, 2 * inter});
        for (int64_t i = 0; i < 3 * inter; ++i) ASSERT_EQ(in_place[i / inter * 2 * inter + i % inter], y[i]);
      }
    }
  }
}

TEST(ActivationTest, EdgesAreDefined) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Machine machine;
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const Activation f : kAll) {
      const auto y = apply(machine.at(level), f, {0.0f, -0.0f, kInf, NAN, 1e38f, -1e38f, -200.0f});
      const bool is_share = f == Activation::kSigmoid;  // the others are near x where it is large
      EXPECT_EQ(y[0], is_share ? 0.5f : 0.0f);
      EXPECT_EQ(y[1], is_share ? 0.5f : 0.0f);
      EXPECT_EQ(y[2], is_share ? 1.0f : kInf);
      EXPECT_TRUE(std::isnan(y[3]));
      EXPECT_EQ(y[4], is_share ? 1.0f : 1e38f);
      EXPECT_EQ(y[5], 0.0f);
      EXPECT_EQ(y[6], 0.0f);
    }
  }
}

// Gates and ups around the limits and far beyond, in any pairing.
std::vector<float> swiglu_pairs(const ClampedSwiglu& form) {
  std::vector<float> values{0.0f, -1.0f, 0.3f, -0.7f, 30.0f, -30.0f, 1e30f, -90.0f};
  for (const float sign : {-1.0f, 1.0f}) {
    for (const float beside : {0x1p-20f, 0.0f, -0x1p-20f}) values.push_back(sign * form.limit * (1 + beside));
  }
  std::vector<float> pairs;
  for (const float gate : values) {
    for (const float up : values) pairs.push_back(gate), pairs.push_back(up);
  }
  return pairs;
}

TEST(ClampedSwigluTest, EqualsTheDefinition) {
  Machine machine;
  for (const ClampedSwiglu form : {ClampedSwiglu{}, ClampedSwiglu{.alpha = 0.9f, .limit = 1.25f}}) {
    const auto x = swiglu_pairs(form);
    const int64_t n = std::ssize(x) / 2;
    std::vector<float> expected(n), y(n);
    ref::swigluoai_and_mul(form, {x.data(), 1, 2 * n}, {expected.data(), 1, n});
    for (const CpuLevel level : usable_cpu_levels()) {
      swigluoai_and_mul(machine.at(level), form, {x.data(), 1, 2 * n}, {y.data(), 1, n});
      for (int64_t i = 0; i < n; ++i) {
        // up + 1, e^t, 1 + e, the division and the product; e^t is relatively as wrong as t is absolutely.
        const double t = std::abs(form.alpha * std::min(x[2 * i], form.limit));
        ASSERT_NEAR(y[i], expected[i], 0x1p-23 * (6.0 + std::min(t, 100.0)) * std::abs(expected[i]) + 1e-36)
            << cpu_level_name(level) << ", gate " << x[2 * i] << ", up " << x[2 * i + 1];
      }
    }
  }
}

TEST(ClampedSwigluTest, GateUpAndLimitsAreWhereTheyBelong) {
  const std::vector<float> x{2.0f, 0.5f, 100.0f, -100.0f, -100.0f, 0.0f, NAN, 0.0f, 0.0f, NAN};
  Machine machine;
  for (const CpuLevel level : usable_cpu_levels()) {
    std::vector<float> y(5);
    swigluoai_and_mul(machine.at(level), {}, {x.data(), 1, 10}, {y.data(), 1, 5});
    EXPECT_NEAR(y[0], 1.5 * 2.0 / (1.0 + std::exp(-3.404)), 1e-5);
    EXPECT_NEAR(y[1], -6.0 * 7.0 / (1.0 + std::exp(-1.702 * 7.0)), 1e-4);
    EXPECT_NEAR(y[2], 0, 1e-30);  // the gate has no lower limit
    EXPECT_TRUE(std::isnan(y[3]));
    EXPECT_TRUE(std::isnan(y[4]));
  }
}

TEST(ClampedSwigluTest, AnElementDoesNotKnowItsIndex) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  Machine machine;
  for (const int64_t n : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 2049}) {
    std::vector<float> x(4 * n);  // two tokens
    for (float& a : x) a = normal(random);
    for (const CpuLevel level : usable_cpu_levels()) {
      std::vector<float> y(2 * n + 1, 99.0f);
      swigluoai_and_mul(machine.at(level), {}, {x.data(), 2, 2 * n}, {y.data(), 2, n});
      EXPECT_EQ(y.back(), 99.0f) << "wrote past the end";
      for (int64_t i = 0; i < 2 * n; ++i) {
        float alone;
        swigluoai_and_mul(machine.at(level), {}, {x.data() + 2 * i, 1, 2}, {&alone, 1, 1});
        ASSERT_EQ(y[i], alone) << cpu_level_name(level) << ", n " << n << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace choral::kernels
