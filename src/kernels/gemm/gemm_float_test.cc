#include "kernels/gemm/gemm_float.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "kernels/gemm/gemm_float_blocking.h"
#include "kernels/gemm/tile_product.h"
#include "kernels/ref/gemm.h"

namespace choral::kernels {
namespace {

struct Rows {
  int64_t rows, cols, stride;
  std::vector<float> data;

  Rows(int64_t r, int64_t c, int64_t extra = 0, float fill = 0)
      : rows(r), cols(c), stride(c + extra), data(r * (c + extra) + 1, fill) {}
  MatrixView<float> view() { return {data.data(), rows, cols, stride}; }
  MatrixView<const float> view() const { return {data.data(), rows, cols, stride}; }
};

Rows random_rows(int64_t rows, int64_t cols, uint32_t seed, int64_t extra = 0) {
  Rows m(rows, cols, extra, std::numeric_limits<float>::quiet_NaN());  // between rows: must never be read into a result
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows; ++i) {
    for (float& v : m.view().row_span(i)) v = normal(random);
  }
  return m;
}

float representable(float x, DType as) {
  if (as == DType::kBF16) return to_float(to_bfloat16(x));
  return as == DType::kF16 ? to_float(to_float16(x)) : x;
}

// A weight whose values the packed type holds exactly, and its packed form.
struct Weight {
  Rows rows;
  std::unique_ptr<PackedMatrix> packed;
};

Weight make_weight(int64_t n, int64_t k, DType as, uint32_t seed) {
  Weight w{random_rows(n, k, seed), nullptr};
  for (float& v : w.rows.data) v = representable(v, as);
  const WeightRows part{{reinterpret_cast<const std::byte*>(w.rows.data.data()), DType::kF32, {n, k}, kCpuDevice}, {}};
  ThreadPool pool(1);
  auto packed = pack_float({&part, 1}, as, pool);
  CHORAL_CHECK(packed.ok(), packed.status().message());
  w.packed = std::move(*packed);
  return w;
}

constexpr DType kPackedTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

struct Case {
  CpuLevel level;
  DType dtype;
};

class EveryLevel : public testing::TestWithParam<Case> {
 protected:
  Rows multiply(const PackedMatrix& w, MatrixView<const float> x, int threads = 1, const Epilogue& epilogue = {}) {
    Rows y(x.rows, w.n(), 3, -7.0f);
    multiply_into(w, x, threads, epilogue, y.view());
    for (int64_t i = 0; i < x.rows; ++i) {
      for (int64_t j = w.n(); j < y.stride; ++j) EXPECT_EQ(y.data[i * y.stride + j], -7.0f) << "wrote beyond the row";
    }
    return y;
  }
  void multiply_into(const PackedMatrix& w, MatrixView<const float> x, int threads, const Epilogue& epilogue,
                     MatrixView<float> y) {
    w.multiply({threads == 1 ? one_ : two_, GetParam().level, arena_}, x, epilogue, y);
  }

  bool on_tile_unit() const { return GetParam().level == CpuLevel::kAmx && GetParam().dtype == DType::kBF16; }

  ThreadPool one_{1}, two_{2};
  Arena arena_;
};

void expect_equal_bits(std::span<const float> a, std::span<const float> b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t j = 0; j < a.size(); ++j)
    ASSERT_EQ(std::bit_cast<uint32_t>(a[j]), std::bit_cast<uint32_t>(b[j]))
        << what << " column " << j << ": " << a[j] << " " << b[j];
}

// |error| <= K · 2^-24 · Σ|x·w|, the bound of a sum of K rounded steps.
void expect_close(MatrixView<const float> x, MatrixView<const float> w, MatrixView<const float> y) {
  std::vector<double> exact(y.rows * y.cols), magnitude(exact.size());
  const MatrixView<double> e(exact.data(), y.rows, y.cols), g(magnitude.data(), y.rows, y.cols);
  ref::gemm_double(x, w, e, g);
  for (int64_t i = 0; i < y.rows; ++i) {
    for (int64_t j = 0; j < y.cols; ++j) {
      ASSERT_LE(std::fabs(y.row(i)[j] - e.row(i)[j]), static_cast<double>(x.cols) * 0x1p-24 * g.row(i)[j])
          << "m " << y.rows << " n " << y.cols << " k " << x.cols << " at " << i << "," << j;
    }
  }
}

TEST_P(EveryLevel, ShapesAroundRegisterWidths) {
  for (const int64_t k : {1, 2, 15, 16, 17, 31, 33, 70}) {
    for (const int64_t n : {1, 15, 16, 17, 33, 48, 65, 70}) {
      const Weight w = make_weight(n, k, GetParam().dtype, static_cast<uint32_t>(n * 100 + k));
      for (int64_t m = 1; m <= 33; m += m < 17 ? 1 : 5) {
        const Rows x = random_rows(m, k, static_cast<uint32_t>(m), m % 3);
        const Rows y = multiply(*w.packed, x.view(), m % 8 == 0 ? 2 : 1);
        ASSERT_NO_FATAL_FAILURE(expect_close(x.view(), w.rows.view(), y.view()));
      }
    }
  }
}

// The promised chain itself, not only a bound.
TEST_P(EveryLevel, EqualsTheChainInOrder) {
  if (on_tile_unit()) GTEST_SKIP() << "the tile unit sums in its own order, which has a test of its own";
  const auto step = GetParam().level == CpuLevel::kBase ? ref::Step::kApart : ref::Step::kFused;
  for (const int64_t k : {33, 257, 600}) {
    const Weight w = make_weight(50, k, GetParam().dtype, 3);
    for (const int64_t m : {1, 5, 13, 14, 15, 40}) {
      const Rows x = random_rows(m, k, 4);
      const Rows y = multiply(*w.packed, x.view());
      Rows expected(m, 50);
      ref::gemm_in_order(x.view(), w.rows.view(), step, expected.view());
      for (int64_t i = 0; i < m; ++i) {
        ASSERT_NO_FATAL_FAILURE(expect_equal_bits(y.view().row_span(i), expected.view().row_span(i), "row " + std::to_string(i)));
      }
    }
  }
}

// Invariant 1: a row alone is the row in any company, whatever the threads, strides and blocks of k and rows.
TEST_P(EveryLevel, RowsDoNotDependOnTheirNumberOrTheThreads) {
  for (const int64_t k : {37, 300, 1100}) {
    const int64_t n = 150;
    const Weight w = make_weight(n, k, GetParam().dtype, 8);
    const Rows x = random_rows(70, k, 9);
    std::vector<Rows> alone;
    for (int64_t i = 0; i < 70; ++i) alone.push_back(multiply(*w.packed, x.view().sub_rows(i, 1)));
    for (int64_t m = 2; m <= 70; m += m < 20 ? 1 : 7) {
      for (const int threads : {1, 2}) {
        const int64_t first = 70 - m;
        const Rows y = multiply(*w.packed, x.view().sub_rows(first, m), threads);
        for (int64_t i = 0; i < m; ++i) {
          ASSERT_NO_FATAL_FAILURE(expect_equal_bits(y.view().row_span(i), alone[first + i].view().row_span(0),
                                                    "m " + std::to_string(m) + " row " + std::to_string(i)));
        }
      }
    }
  }
}

TEST_P(EveryLevel, ManyRowsAreCutIntoBlocksUnseen) {
  const int64_t m = 517, k = 530, n = 40;
  const Weight w = make_weight(n, k, GetParam().dtype, 18);
  const Rows x = random_rows(m, k, 19, 5);
  const Rows y = multiply(*w.packed, x.view(), 2);
  for (const int64_t i : {0, 1, 171, 172, 173, 258, 343, 344, 345, 515, 516}) {
    const Rows alone = multiply(*w.packed, x.view().sub_rows(i, 1));
    ASSERT_NO_FATAL_FAILURE(expect_equal_bits(y.view().row_span(i), alone.view().row_span(0), "row " + std::to_string(i)));
  }
}

TEST_P(EveryLevel, NonFiniteInputStaysInItsRow) {
  const int64_t k = 45, n = 35;
  const Weight w = make_weight(n, k, GetParam().dtype, 28);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const int64_t m : {1, 2, 7, 14, 29}) {
      const Rows clean = random_rows(m, k, 29);
      Rows x = clean;
      x.view().row(m / 2)[k - 1] = bad;
      const Rows y = multiply(*w.packed, x.view());
      const Rows expected = multiply(*w.packed, clean.view());
      for (int64_t i = 0; i < m; ++i) {
        if (i != m / 2) {
          ASSERT_NO_FATAL_FAILURE(expect_equal_bits(y.view().row_span(i), expected.view().row_span(i), "neighbour"));
          continue;
        }
        for (int64_t j = 0; j < n; ++j) {
          const float value = y.view().row(i)[j];
          const float weight = w.rows.view().row(j)[k - 1];
          if (std::isnan(bad)) {
            ASSERT_TRUE(std::isnan(value));
          } else if (weight != 0) {
            ASSERT_EQ(value, bad * weight) << "an infinity stays an infinity of the right sign";
          }
        }
      }
    }
  }
}

// Huge, tiny and exactly cancelling x: fp32 activations are never rounded on the way in.
TEST_P(EveryLevel, KeepsEveryBitOfTheActivation) {
  const int64_t k = 64;
  const Weight w = make_weight(20, k, GetParam().dtype, 31);
  Rows x(3, k);
  std::mt19937 random(32);
  for (int64_t i = 0; i < k; ++i) {
    const float v = 1.0f + static_cast<float>(random() % (1u << 23)) * 0x1p-23f;  // 24 significant bits
    x.view().row(0)[i] = v;
    x.view().row(1)[i] = std::ldexp(v, 100);
    x.view().row(2)[i] = std::ldexp(v, -90);
  }
  const Rows y = multiply(*w.packed, x.view());
  expect_close(x.view(), w.rows.view(), y.view());
  Rows unit(1, k);
  for (int64_t i = 0; i < k; ++i) {  // one term: the product is exact up to its single rounding
    std::fill(unit.data.begin(), unit.data.end(), 0.0f);
    unit.view().row(0)[i] = x.view().row(0)[i];
    const Rows one = multiply(*w.packed, unit.view());
    for (int64_t j = 0; j < 20; ++j) {
      const double exact = static_cast<double>(unit.view().row(0)[i]) * w.rows.view().row(j)[i];
      ASSERT_NEAR(one.view().row(0)[j], exact, std::fabs(exact) * 0x1p-23);
    }
  }
  Rows largest(1, k, 0, 0.0f);
  largest.view().row(0)[0] = std::numeric_limits<float>::max();
  const Rows big = multiply(*w.packed, largest.view());
  for (int64_t j = 0; j < 20; ++j) {
    const float exact = std::numeric_limits<float>::max() * w.rows.view().row(j)[0];
    if (std::fabs(w.rows.view().row(j)[0]) < 0.99f) {
      ASSERT_NEAR(big.view().row(0)[j], exact, std::fabs(exact) * 0x1p-22f);
    }
  }
}

TEST_P(EveryLevel, EpilogueFormsAndTheirOrder) {
  const int64_t k = 50;
  for (const int64_t n : {5, 33, 200}) {
    const Weight w = make_weight(n, k, GetParam().dtype, 38);
    const Rows bias = random_rows(1, n, 39);
    for (const int64_t m : {1, 3, 14, 31}) {
      const Rows x = random_rows(m, k, 40);
      const Rows old = random_rows(m, n, 41);
      const Rows plain = multiply(*w.packed, x.view());
      for (int form = 0; form < 16; ++form) {
        std::vector<std::atomic<int>> calls(m * n);
        const auto add = [&](int64_t row, int64_t col, MatrixView<float> tile) {
          for (int64_t i = 0; i < tile.rows; ++i) {
            for (int64_t j = 0; j < tile.cols; ++j) {
              ++calls[(row + i) * n + col + j];
              tile.row(i)[j] += 0.1f * static_cast<float>(row + i) - 0.3f * static_cast<float>(col + j);
            }
          }
        };
        const Epilogue::Hook hook(add);
        Epilogue epilogue{.bias = form & 1 ? bias.data.data() : nullptr, .accumulate = (form & 4) != 0};
        if (form & 2) epilogue.product_hook = &hook;
        if (form & 8) epilogue.result_hook = &hook;
        Rows y = old;
        multiply_into(*w.packed, x.view(), 2, epilogue, y.view());
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            float expected = plain.view().row(i)[j];
            if (form & 2) expected += 0.1f * static_cast<float>(i) - 0.3f * static_cast<float>(j);
            if (form & 1) expected += bias.view().row(0)[j];
            if (form & 4) expected += old.view().row(i)[j];
            if (form & 8) expected += 0.1f * static_cast<float>(i) - 0.3f * static_cast<float>(j);
            ASSERT_EQ(y.view().row(i)[j], expected) << "form " << form << " m " << m << " n " << n << " at " << i << "," << j;
            ASSERT_EQ(calls[i * n + j], (form & 2) / 2 + (form & 8) / 8) << "hooks run once for each element";
          }
        }
      }
    }
  }
}

TEST_P(EveryLevel, NoRowsIsNoWork) {
  const Weight w = make_weight(20, 40, GetParam().dtype, 1);
  multiply_into(*w.packed, {nullptr, 0, 40}, 1, {}, {nullptr, 0, 20});
}

TEST_P(EveryLevel, AllocatesNothingOnceWarm) {
  const Weight w = make_weight(70, 300, GetParam().dtype, 1);
  for (const int64_t m : {1, 9, 100}) {
    const Rows x = random_rows(m, 300, 2);
    multiply(*w.packed, x.view(), 2);
    const int64_t grown = arena_.grown();
    multiply(*w.packed, x.view(), 2);
    EXPECT_EQ(arena_.grown(), grown);
  }
}

// Every level with code of its own: vnni and bf16 run what avx512 runs (TellsItsFormatSizeAndKernel), amx but for bf16 weights.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const CpuLevel level : usable_cpu_levels()) {
    if (level == CpuLevel::kVnni) continue;
    for (const DType dtype : kPackedTypes) {
      if (level != CpuLevel::kAmx || (dtype == DType::kBF16 && bf16_tile_product(CpuLevel::kAmx) != nullptr))
        all.push_back({level, dtype});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(GemmFloat, EveryLevel, testing::ValuesIn(cases()), [](const auto& test) {
  return std::string(cpu_level_name(test.param.level)) + "_" + std::string(dtype_name(test.param.dtype));
});

TEST(PackFloat, TellsItsFormatSizeAndKernel) {
  const Weight w = make_weight(17, 33, DType::kBF16, 1);
  EXPECT_EQ(w.packed->format(), "bf16");
  EXPECT_EQ(w.packed->size_bytes(), 2 * 64 * 16 * 2);
  for (const CpuLevel level : usable_cpu_levels()) {
    const auto* tiles = bf16_tile_product(level);
    EXPECT_EQ(w.packed->kernel_name(level),
              fmt::format("bf16 x f32, {}", tiles != nullptr ? tiles->name : float_kernels(level).name));
    EXPECT_EQ(make_weight(17, 33, DType::kF16, 1).packed->kernel_name(level),
              fmt::format("f16 x f32, {}", float_kernels(level).name));
  }
  std::vector<float> row(33);
  ASSERT_TRUE(w.packed->read_row(16, row).ok());
  expect_equal_bits(row, w.rows.view().row_span(16), "read_row");
}

}  // namespace
}  // namespace choral::kernels
