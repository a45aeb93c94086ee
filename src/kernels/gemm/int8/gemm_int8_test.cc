#include "kernels/gemm/int8/gemm_int8.h"

#include "kernels/gemm/int8/gemm_int8_test_data.h"
#include "kernels/gemm/int8/int8_panels.h"
#include "kernels/gemm/packed_matrix_test.h"
#include "kernels/ref/row_quant.h"

namespace choral::kernels {
namespace {

std::unique_ptr<PackedMatrix> pack(const Int8MatrixData& data, RowQuant input = {}) {
  ThreadPool pool(1);
  const Int8Part part = data.part();
  return packed_or_die(pack_int8({&part, 1}, {data.group_size, input}, pool));
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
      for (const CpuLevel level : integer_levels()) {
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
        for (const CpuLevel level : integer_levels()) {
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
      for (const CpuLevel level : integer_levels()) {
        for (const int64_t rows : {1, 7}) {
          ASSERT_TRUE(same_bits(multiply_int8(*w, level, x, rows), rows_of(expected, 0, rows, n)))
              << cpu_level_name(level) << ", k " << k << ", fill " << static_cast<int>(fill);
        }
      }
    }
  }
}

TEST_P(GemmInt8Test, RowsAreIndependentOfBatchAndThreads) {
  expect_rows_are_independent(*pack(int8_matrix(200, 768, GetParam(), Int8Fill::kRandom, 7)), 500);
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
      for (const CpuLevel level : integer_levels()) {
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
        for (const CpuLevel level : integer_levels()) {
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
  for (const RowQuant input : {RowQuant{}, RowQuant{StaticQuant{0.02f, 9}}}) {
    expect_non_finite_x_stays_in_its_row(*pack(int8_matrix(40, 100, GetParam(), Int8Fill::kRandom, 18), input));
  }
}

TEST_P(GemmInt8Test, Epilogue) {
  expect_epilogue(*pack(int8_matrix(71, 260, GetParam(), Int8Fill::kRandom, 20)), {1, 3, 9, 300});
}

TEST_P(GemmInt8Test, StridedViewsAndNothingBesideThem) {
  expect_views_are_kept(*pack(int8_matrix(20, 97, GetParam(), Int8Fill::kRandom, 23)));
}

TEST_P(GemmInt8Test, NoRowsAreNoWork) {
  const auto w = pack(int8_matrix(20, 50, GetParam(), Int8Fill::kRandom, 27));
  for (const CpuLevel level : integer_levels()) EXPECT_TRUE(multiply(*w, level, {}, 0).empty());
}

TEST_P(GemmInt8Test, ScratchIsGivenBackAndDoesNotGrow) {
  expect_scratch_is_given_back(*pack(int8_matrix(64, 500, GetParam(), Int8Fill::kRandom, 25)));
}

}  // namespace
}  // namespace choral::kernels
