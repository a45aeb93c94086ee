#include "kernels/gemm/int8/gemm_int8.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/gemm/int8/gemm_int8_test_data.h"
#include "kernels/gemm/int8/int8_panels.h"
#include "kernels/ref/row_quant.h"

namespace choral::kernels {
namespace {

std::unique_ptr<PackedMatrix> pack(const Int8MatrixData& data, RowQuant input = {}) {
  ThreadPool pool(1);
  const Int8Part part = data.part();
  auto packed = pack_int8({&part, 1}, {data.group_size, input}, pool);
  CHORAL_CHECK(packed.ok(), packed.status().message());
  return std::move(*packed);
}

// Rows of x as they are multiplied.
struct Rows {
  std::vector<int8_t> q;
  std::vector<float> scales;
};

Rows int8_rows(int64_t m, int64_t k, Int8Fill fill, uint32_t seed) {
  Rows out{int8_values(m * k, fill, seed), {}};
  for (int64_t i = 0; i < m; ++i) out.scales.push_back(0.01f + 0.003f * static_cast<float>(i));
  return out;
}

std::vector<float> multiply_int8(const PackedMatrix& w, CpuLevel level, const Rows& x, int64_t m, const Epilogue& epilogue = {},
                                 int threads = 1) {
  ThreadPool pool(threads);
  Arena scratch;
  std::vector<float> y(static_cast<size_t>(m * w.n()), -7.0f);
  w.multiply_quantised({pool, level, scratch}, int8_rows_for(w, level, x.q, x.scales, m, scratch), epilogue,
                       {y.data(), m, w.n()});
  return y;
}

std::vector<float> multiply(const PackedMatrix& w, CpuLevel level, const std::vector<float>& x, int64_t m,
                            const Epilogue& epilogue = {}, int threads = 1, float old = -7.0f) {
  ThreadPool pool(threads);
  Arena scratch;
  std::vector<float> y(static_cast<size_t>(m * w.n()), old);
  w.multiply({pool, level, scratch}, {x.data(), m, w.k()}, epilogue, {y.data(), m, w.n()});
  return y;
}

std::vector<float> oracle(const Int8MatrixData& data, const Rows& x, int64_t m, std::span<const int32_t> corrections = {}) {
  std::vector<float> y(static_cast<size_t>(m * data.n));
  std::vector<float> scales = data.scales;
  int64_t group = data.group_size, groups = data.groups();
  if (group == 0) {  // one scale, in groups of which each sum is an int32
    group = 65536;
    groups = ceil_div(data.k, group);
    scales.clear();
    for (const float scale : data.scales) scales.insert(scales.end(), static_cast<size_t>(groups), scale);
  }
  ref::Int8Weights weights{{data.w.data(), data.n, data.k}, group, {scales.data(), data.n, groups}};
  if (!corrections.empty()) weights.corrections = {corrections.data(), data.n, groups};
  ref::int8_gemm({x.q.data(), m, data.k}, std::span(x.scales).first(static_cast<size_t>(m)), weights, {y.data(), m, data.n});
  return y;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}
std::span<const float> rows_of(const std::vector<float>& y, int64_t first, int64_t count, int64_t n) {
  return std::span(y).subspan(static_cast<size_t>(first * n), static_cast<size_t>(count * n));
}

// Every level that has a form of its own, and the highest.
std::vector<CpuLevel> levels() {
  auto out = usable_cpu_levels();
  const CpuLevel highest = out.back();
  std::erase_if(out, [&](CpuLevel level) { return level > CpuLevel::kVnni && level != highest; });
  return out;
}

class GemmInt8Test : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Groups, GemmInt8Test, testing::Values(0, 32, 64, 128),
                         [](const auto& tested) { return "Of" + std::to_string(tested.param); });

// Panels of every fullness, tiles of every height, k that ends within a step, a group, a block.
TEST_P(GemmInt8Test, BitsEqualTheOracle) {
  for (const int64_t k : {1, 31, 32, 33, 48, 256, 300, 1025, 4097}) {
    for (const int64_t n : {1, 15, 16, 17, 33, 80}) {
      if (k > 1000 && n > 33) continue;
      const auto data = int8_matrix(n, k, GetParam(), Int8Fill::kRandom, static_cast<uint32_t>(k + n));
      const auto w = pack(data);
      const Rows x = int8_rows(64, k, Int8Fill::kRandom, 2);
      const auto expected = oracle(data, x, 64);
      for (const CpuLevel level : levels()) {
        for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 64}) {
          ASSERT_TRUE(same_bits(multiply_int8(*w, level, x, m), rows_of(expected, 0, m, n)))
              << cpu_level_name(level) << ", k " << k << ", n " << n << ", m " << m;
        }
      }
    }
  }
}

// All -128, all 127, alternating, on either side: a kernel that saturates or wraps shows at once. No byte of x is refused.
TEST_P(GemmInt8Test, ExtremeIntegersAreExact) {
  const int64_t n = 33, m = 7;
  for (const int64_t k : {1, 33, 4097}) {
    for (const Int8Fill of_w : kInt8Fills) {
      const auto data = int8_matrix(n, k, GetParam(), of_w, 3);
      const auto w = pack(data);
      for (const Int8Fill of_x : kInt8Fills) {
        const Rows x = int8_rows(m, k, of_x, 4);
        const auto expected = oracle(data, x, m);
        for (const CpuLevel level : levels()) {
          for (const int64_t rows : {1, 4, 7}) {
            ASSERT_TRUE(same_bits(multiply_int8(*w, level, x, rows), rows_of(expected, 0, rows, n)))
                << cpu_level_name(level) << ", k " << k << ", w " << static_cast<int>(of_w) << ", x " << static_cast<int>(of_x);
          }
        }
      }
    }
  }
}

// The longest sum that an int32 holds, one k more, and three of them: further ones are groups of their own.
TEST_P(GemmInt8Test, LongSumsAreExact) {
  const int64_t n = 17, m = 7;
  for (const int64_t k : {65536, 65537, 131080}) {
    for (const Int8Fill fill : {Int8Fill::kLeast, Int8Fill::kLargest, Int8Fill::kRandom}) {
      const auto data = int8_matrix(n, k, GetParam(), fill, 5);
      const auto w = pack(data);
      const Rows x = int8_rows(m, k, fill == Int8Fill::kLargest ? Int8Fill::kLeast : fill, 6);
      const auto expected = oracle(data, x, m);
      for (const CpuLevel level : levels()) {
        for (const int64_t rows : {1, 7}) {
          ASSERT_TRUE(same_bits(multiply_int8(*w, level, x, rows), rows_of(expected, 0, rows, n)))
              << cpu_level_name(level) << ", k " << k << ", fill " << static_cast<int>(fill);
        }
      }
    }
  }
}

// Invariant 1: a row's bits depend neither on its batch, its place, nor on threads. 500 rows are more than one pass.
TEST_P(GemmInt8Test, RowsAreIndependentOfBatchAndThreads) {
  const int64_t k = 768, n = 200, rows = 500;
  const auto w = pack(int8_matrix(n, k, GetParam(), Int8Fill::kRandom, 7));
  const auto x = gaussian(rows * k, 8);
  for (const CpuLevel level : levels()) {
    if (level == CpuLevel::kBase) continue;  // equal to the oracle above, and slow here
    const auto all = multiply(*w, level, x, rows, {}, 2);
    EXPECT_TRUE(same_bits(all, multiply(*w, level, x, rows, {}, 1)));
    EXPECT_TRUE(same_bits(all, multiply(*w, level, x, rows, {}, 5)));
    for (int64_t i = 0; i < rows; i += 17) {
      const std::vector<float> one(x.begin() + i * k, x.begin() + (i + 1) * k);
      ASSERT_TRUE(same_bits(multiply(*w, level, one, 1), rows_of(all, i, 1, n))) << i;
    }
    for (int64_t m = 2; m <= 40; ++m) {
      ASSERT_TRUE(same_bits(multiply(*w, level, x, m, {}, 1 + static_cast<int>(m % 2)), rows_of(all, 0, m, n))) << m;
    }
  }
}

TEST_P(GemmInt8Test, FloatRowsAreQuantisedAsTheRowQuantiserDoes) {
  const int64_t k = 333, n = 40;
  const auto data = int8_matrix(n, k, GetParam(), Int8Fill::kRandom, 9);
  const auto bias = gaussian(n, 10);
  for (const RowQuant input : {RowQuant{}, RowQuant{StaticQuant{0.02f, 0}}}) {
    const auto w = pack(data, input);
    ASSERT_EQ(w->quantised_input(cpu_level()), (RowForm{.kind = RowForm::Kind::kInt8, .int8 = input}));
    for (const int64_t m : {1, 3, 70, 1000}) {  // direct, tiled, several passes, and quantised in two parts
      auto x = gaussian(m * k, 11);
      std::fill_n(x.begin(), k, 0.0f);
      Rows rows{std::vector<int8_t>(x.size()), std::vector<float>(static_cast<size_t>(m))};
      const MatrixView<int8_t> q(rows.q.data(), m, k);
      if (input.fixed) {
        ref::static_quant_rows({x.data(), m, k}, input.fixed->scale, input.fixed->offset, q, rows.scales);
      } else {
        ref::dynamic_quant_rows({x.data(), m, k}, q, rows.scales);
      }
      const Epilogue epilogue{.bias = bias.data(), .accumulate = true};
      for (const CpuLevel level : levels()) {
        if (level == CpuLevel::kBase && m > 3) continue;
        const auto y = multiply(*w, level, x, m, epilogue, 2);
        ASSERT_TRUE(same_bits(y, multiply_int8(*w, level, rows, m, epilogue))) << cpu_level_name(level) << ", " << m << " rows";
        for (int64_t j = 0; j < n; ++j) ASSERT_EQ(y[static_cast<size_t>(j)], bias[static_cast<size_t>(j)] + -7.0f);
      }
    }
  }
}

// y = (Σ q·w − offset · Σ w) · scale with the whole bracket an exact integer, whatever q and offset; k of one group.
TEST_P(GemmInt8Test, StaticOffsetsAreTakenOffExactly) {
  const int64_t n = 19, m = 9;
  for (const int64_t k : {5, 32, 400, 65536}) {
    for (const Int8Fill fill : kInt8Fills) {
      const auto data = int8_matrix(n, k, GetParam(), fill, 12);
      Rows x = int8_rows(m, k, fill == Int8Fill::kLargest ? Int8Fill::kLeast : fill, 13);
      x.scales.assign(static_cast<size_t>(m), 1.0f);
      for (const int32_t offset : {-128, -3, 127}) {
        std::vector<int32_t> corrections;
        for (int64_t j = 0; j < n; ++j) {
          const int64_t group = data.group_size == 0 ? k : data.group_size;
          for (int64_t g = 0; g < data.groups(); ++g) {
            int32_t sum = 0;
            for (int64_t i = g * group; i < std::min(k, (g + 1) * group); ++i) sum += data.w[static_cast<size_t>(j * k + i)];
            corrections.push_back(-offset * sum);
          }
        }
        const auto w = pack(data, {StaticQuant{0.5f, offset}});
        const auto expected = oracle(data, x, m, corrections);
        for (const CpuLevel level : levels()) {
          for (const int64_t rows : {1, 6, 9}) {
            ASSERT_TRUE(same_bits(multiply_int8(*w, level, x, rows), rows_of(expected, 0, rows, n)))
                << cpu_level_name(level) << ", k " << k << ", offset " << offset << ", fill " << static_cast<int>(fill);
          }
        }
      }
    }
  }
}

// Against the product of what the integers stand for, in double: each group rounds its product and its sum, the row's scale once
// more.
TEST_P(GemmInt8Test, ErrorOfTheSumIsBounded) {
  const int64_t n = 48, k = 2048, m = 6;
  const auto data = int8_matrix(n, k, GetParam(), Int8Fill::kRandom, 16);
  const Rows x = int8_rows(m, k, Int8Fill::kRandom, 17);
  const auto y = multiply_int8(*pack(data), cpu_level(), x, m);
  const int64_t group = data.group_size == 0 ? k : data.group_size;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double exact = 0, magnitude = 0;
      for (int64_t c = 0; c < k; ++c) {
        const double term = static_cast<double>(x.scales[static_cast<size_t>(i)]) * x.q[static_cast<size_t>(i * k + c)] *
                            data.scales[static_cast<size_t>(j * data.groups() + c / group)] *
                            data.w[static_cast<size_t>(j * k + c)];
        exact += term;
        magnitude += std::fabs(term);
      }
      ASSERT_LE(std::fabs(y[static_cast<size_t>(i * n + j)] - exact),
                static_cast<double>(data.groups() + 2) * 0x1p-23 * magnitude);
    }
  }
}

TEST_P(GemmInt8Test, NonFiniteXStaysInItsRow) {
  const int64_t k = 100, n = 40;
  for (const RowQuant input : {RowQuant{}, RowQuant{StaticQuant{0.02f, 9}}}) {
    const auto w = pack(int8_matrix(n, k, GetParam(), Int8Fill::kRandom, 18), input);
    for (const CpuLevel level : levels()) {
      for (const int64_t m : {3, 9}) {
        const auto good = gaussian(m * k, 19);
        const auto expected = multiply(*w, level, good, m);
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
          auto x = good;
          x[static_cast<size_t>(k + 77)] = bad;
          const auto y = multiply(*w, level, x, m);
          for (int64_t j = 0; j < n; ++j) EXPECT_TRUE(std::isnan(y[static_cast<size_t>(n + j)]));
          EXPECT_TRUE(same_bits(rows_of(y, 0, 1, n), rows_of(expected, 0, 1, n)));
          EXPECT_TRUE(same_bits(rows_of(y, 2, m - 2, n), rows_of(expected, 2, m - 2, n)));
        }
      }
    }
  }
}

// y = product + hook + bias + old y + hook, rounded after each; the hooks see every element once, the first the bare product.
TEST_P(GemmInt8Test, Epilogue) {
  const int64_t k = 260, n = 71;
  const auto w = pack(int8_matrix(n, k, GetParam(), Int8Fill::kRandom, 20));
  const auto x = gaussian(300 * k, 21);
  const auto bias = gaussian(n, 22);
  for (const int64_t m : {1, 3, 9, 300}) {
    const auto plain = multiply(*w, cpu_level(), x, m);
    std::vector<int> seen(static_cast<size_t>(m * n));
    std::vector<float> before(static_cast<size_t>(m * n));
    const auto add = [&](int64_t row, int64_t col, MatrixView<float> tile) {
      for (int64_t i = 0; i < tile.rows; ++i) {
        for (int64_t j = 0; j < tile.cols; ++j) {
          const auto at = static_cast<size_t>((row + i) * n + col + j);
          ++seen[at];
          before[at] = tile.row(i)[j];
          tile.row(i)[j] += 0.1f * static_cast<float>(at);
        }
      }
    };
    const auto scale = [&](int64_t row, int64_t col, MatrixView<float> tile) {
      for (int64_t i = 0; i < tile.rows; ++i) {
        for (int64_t j = 0; j < tile.cols; ++j) tile.row(i)[j] *= 1.0f + static_cast<float>((row + i) * n + col + j);
      }
    };
    const Epilogue::Hook hook(add), result_hook(scale);
    const auto y =
        multiply(*w, cpu_level(), x, m,
                 {.bias = bias.data(), .product_hook = &hook, .result_hook = &result_hook, .accumulate = true}, 2, 3.3f);
    EXPECT_THAT(seen, testing::Each(1));
    EXPECT_TRUE(same_bits(before, plain));
    for (size_t at = 0; at < y.size(); ++at) {
      const float sum = (plain[at] + 0.1f * static_cast<float>(at) + bias[at % static_cast<size_t>(n)]) + 3.3f;
      ASSERT_EQ(y[at], sum * (1.0f + static_cast<float>(at)));
    }
  }
}

TEST_P(GemmInt8Test, StridedViewsAndNothingBesideThem) {
  const int64_t k = 97, n = 20;
  const auto data = int8_matrix(n, k, GetParam(), Int8Fill::kRandom, 23);
  const auto w = pack(data);
  for (const int64_t m : {2, 9}) {
    const Rows packed = int8_rows(m, k, Int8Fill::kRandom, 24);
    const auto expected = oracle(data, packed, m);
    ThreadPool pool(1);
    Arena scratch;
    for (const CpuLevel level : levels()) {
      std::vector<float> y(static_cast<size_t>(m * 32), 5.0f);
      w->multiply_quantised({pool, level, scratch}, int8_rows_for(*w, level, packed.q, packed.scales, m, scratch), {},
                            {y.data(), m, n, 32});
      for (int64_t i = 0; i < m; ++i) {
        EXPECT_TRUE(same_bits(std::span(y).subspan(static_cast<size_t>(i * 32), n), rows_of(expected, i, 1, n)));
        for (int64_t j = n; j < 32; ++j) EXPECT_EQ(y[static_cast<size_t>(i * 32 + j)], 5.0f);
      }
    }
  }
}

TEST_P(GemmInt8Test, NoRowsAreNoWork) {
  const auto w = pack(int8_matrix(20, 50, GetParam(), Int8Fill::kRandom, 27));
  for (const CpuLevel level : levels()) EXPECT_TRUE(multiply(*w, level, {}, 0).empty());
}

TEST_P(GemmInt8Test, ScratchIsGivenBackAndDoesNotGrow) {
  const auto w = pack(int8_matrix(64, 500, GetParam(), Int8Fill::kRandom, 25));
  const auto x = gaussian(33 * 500, 26);
  ThreadPool pool(2);
  Arena scratch;
  std::vector<float> y(33 * 64);
  const void* start = scratch.allocate(64);
  scratch.reset();
  for (int i = 0; i < 3; ++i) w->multiply({pool, cpu_level(), scratch}, {x.data(), 33, 500}, {}, {y.data(), 33, 64});
  const int64_t grown = scratch.grown();
  w->multiply({pool, cpu_level(), scratch}, {x.data(), 33, 500}, {}, {y.data(), 33, 64});
  EXPECT_EQ(scratch.grown(), grown);
  EXPECT_EQ(scratch.allocate(64), start);
}

}  // namespace
}  // namespace choral::kernels
