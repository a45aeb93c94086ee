// The two forms of level amx give equal bits, and they are the formula in gemm_float_amx.h.
#include "kernels/x86/gemm_float_amx.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "kernels/x86/gemm_float_amx_row.h"

namespace choral::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class TileUnitForms : public testing::Test {
 protected:
  void SetUp() override {
    if (cpu_level() < CpuLevel::kAmx) GTEST_SKIP() << "this CPU, or its cap, has no tile unit";
    ASSERT_TRUE(tile_unit_is_exact()) << "this CPU's tile unit sums in another order";
  }

  // Random numbers with exponents in [low, high], both signs; every 16 significant bits differ.
  std::vector<float> numbers(int64_t count, int low, int high) {
    std::vector<float> out(count);
    std::uniform_int_distribution<int> exponent(low, high);
    for (float& v : out) {
      const float fraction = 1.0f + static_cast<float>(random_() % (1u << 23)) * 0x1p-23f;
      v = std::ldexp(random_() % 2 == 0 ? fraction : -fraction, exponent(random_));
    }
    return out;
  }

  void set_weights(std::vector<float> w, int64_t n, int64_t k) {
    weights_ = std::move(w);
    for (float& v : weights_) v = to_float(to_bfloat16(v));
    const WeightRows part{{reinterpret_cast<const std::byte*>(weights_.data()), DType::kF32, {n, k}, kCpuDevice}, {}};
    auto packed = pack_float_panels({&part, 1}, DType::kBF16, one_);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    panels_ = std::move(*packed);
  }

  std::vector<float> multiply(std::span<const float> x, int64_t rows, int threads) {
    std::vector<float> y(rows * panels_.n, -7.0f);
    run({threads == 1 ? one_ : two_, CpuLevel::kAmx, arena_}, {x.data(), rows, panels_.k}, {}, {y.data(), rows, panels_.n});
    return y;
  }
  void run(const Context& ctx, MatrixView<const float> x, const Epilogue& epilogue, MatrixView<float> y) const {
    const Arena::Mark mark(ctx.scratch);
    const MatrixProduct* product = plan_panels_amx(panels_, ctx, x, epilogue, y, ctx.pool.size());
    run_products(ctx, {&product, 1});
  }

  // Each row of 64 alone (AVX-512), and in companies of 2 … 64 (tile unit).
  void expect_equal_forms(const std::vector<float>& x, const std::string& what) {
    const int64_t n = panels_.n, k = panels_.k;
    std::vector<std::vector<float>> alone;
    for (int64_t i = 0; i < 64; ++i) alone.push_back(multiply(std::span(x).subspan(i * k), 1, 1 + static_cast<int>(i % 2)));
    for (const int64_t m : {2, 3, 16, 17, 33, 64}) {
      const auto y = multiply(x, m, 1 + static_cast<int>(m % 2));
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          const float a = alone[i][j], b = y[i * n + j];
          if (std::isnan(a) && std::isnan(b)) continue;  // which NaN is not promised
          ASSERT_EQ(std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b))
              << what << ", m " << m << " row " << i << " column " << j << ": " << a << " " << b;
        }
      }
    }
  }

  std::mt19937 random_{7};
  std::vector<float> weights_;
  FloatPanels panels_;
  ThreadPool one_{1}, two_{2};
  Arena arena_;
};

TEST_F(TileUnitForms, AreEqualForNumbersOfAllSizes) {
  struct Range {
    const char* name;
    int x_low, x_high, w_low, w_high;
  };
  constexpr Range kRanges[] = {
      {"near one", -2, 2, -2, 2},
      {"spread", -40, 40, -20, 20},
      {"products about the least normal number", -70, -60, -66, -56},
      {"subnormal x and terms of x", -149, -110, 0, 60},
      {"subnormal weights", -10, 60, -133, -120},
      {"sums near overflow", 58, 62, 58, 62},
      {"sums beyond it", 60, 64, 60, 64},
  };
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{33, 1}, {70, 37}, {257, 80}, {1056, 130}}) {
    for (const Range& r : kRanges) {
      ASSERT_NO_FATAL_FAILURE(set_weights(numbers(n * k, r.w_low, r.w_high), n, k));
      ASSERT_NO_FATAL_FAILURE(expect_equal_forms(numbers(64 * k, r.x_low, r.x_high), r.name));
    }
  }
}

TEST_F(TileUnitForms, AreEqualBesideInfinitiesAndNaN) {
  const int64_t n = 37, k = 75;
  ASSERT_NO_FATAL_FAILURE(set_weights(numbers(n * k, -3, 3), n, k));
  const auto clean = numbers(64 * k, -3, 3);
  const auto clean_y = multiply(clean, 64, 2);
  auto x = clean;
  const std::array<float, 4> bad{kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                                 std::bit_cast<float>(0x7F800001u)};  // a NaN whose payload lies in the lower half only
  for (int64_t i = 0; i < 64; i += 5) x[i * k + i] = bad[i / 5 % 4];
  ASSERT_NO_FATAL_FAILURE(expect_equal_forms(x, "non-finite"));
  const auto y = multiply(x, 64, 2);
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const float value = y[i * n + j];
      if (i % 5 != 0) {
        ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(clean_y[i * n + j]));
      } else if (i / 5 % 4 < 2) {
        ASSERT_EQ(value, x[i * k + i] * weights_[j * k + i]);
      } else {
        ASSERT_TRUE(std::isnan(value));
      }
    }
  }
}

// The formula in plain C++: a change of the order of terms, chains or blocks changes bits here.
TEST_F(TileUnitForms, AreTheFormulaInTheHeader) {
  const int64_t n = 20, k = 150, rows = 5;
  ASSERT_NO_FATAL_FAILURE(set_weights(numbers(n * k, -6, 6), n, k));
  const auto x = numbers(rows * k, -6, 6);
  const auto y = multiply(x, rows, 2);
  const auto upper = [](float v) { return std::bit_cast<float>(std::bit_cast<uint32_t>(v) & 0xFFFF0000u); };
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float acc = 0;
      for (int64_t k0 = 0; k0 < k; k0 += 32) {
        for (int term = 2; term >= 0; --term) {
          float chain[2] = {0, 0};
          for (int64_t c = k0; c < std::min(k, k0 + 32); ++c) {
            const float v = x[i * k + c];
            const float hi = upper(v), mid = upper(v - hi), lo = v - hi - mid;
            chain[c % 2] = std::fma(term == 0 ? hi : term == 1 ? mid : lo, weights_[j * k + c], chain[c % 2]);
          }
          acc += chain[0] + chain[1];
        }
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(y[i * n + j]), std::bit_cast<uint32_t>(acc)) << i << "," << j;
    }
  }
}

// Bias, hook and old y are added after, under the caller's rounding: subnormal sums of theirs stay.
TEST_F(TileUnitForms, LeaveTheThreadsRoundingAsItWas) {
  ASSERT_NO_FATAL_FAILURE(set_weights(numbers(16 * 32, 0, 1), 16, 32));
  const std::vector<float> zeros(2 * 32, 0.0f);
  const unsigned before = _mm_getcsr();
  for (const int64_t rows : {1, 2}) {
    std::vector<float> y(rows * 16, 0x1p-140f);
    Epilogue accumulate;
    accumulate.accumulate = true;
    run({one_, CpuLevel::kAmx, arena_}, {zeros.data(), rows, 32}, accumulate, {y.data(), rows, 16});
    for (const float v : y) ASSERT_EQ(v, 0x1p-140f);
  }
  EXPECT_EQ(_mm_getcsr(), before);
  {
    const TileUnitRounding rounding;
    EXPECT_EQ(_mm_getcsr() & 0xFFC0u, 0x9FC0u) << "to nearest, no traps, subnormals as zero";
  }
  EXPECT_EQ(_mm_getcsr(), before);
}

// A level without code for it, or a unit that fails the probe, is told by the kernel's name.
TEST(TileUnit, ProbeNeedsTheMachine) { EXPECT_TRUE(machine_has(CpuLevel::kAmx) || !tile_unit_is_exact()); }

}  // namespace
}  // namespace choral::kernels
