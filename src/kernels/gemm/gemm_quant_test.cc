#include "kernels/gemm/gemm_quant.h"

#include "kernels/gemm/packed_matrix_test.h"
#include "kernels/quant/dequantise.h"
#include "kernels/quant/quant_panels.h"

namespace choral::kernels {
namespace {

std::unique_ptr<PackedMatrix> pack(const QuantMatrixData& data, Planes planes = Planes::kTwo) {
  ThreadPool pool(1);
  const WeightRows part{data.view()};
  return packed_or_die(pack_quantised({&part, 1}, pool, planes));
}

// A row of x times a row of W, by the oracle.
float planes_dot(DType type, const std::byte* row, const float* x, int64_t k) {
  const auto planes = planes_of(x, k);
  return ref::quantised_dot(type, row, planes[0]) + ref::quantised_dot(type, row, planes[1]);
}

class GemmQuantTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, GemmQuantTest, testing::ValuesIn(kQuantTypes),
                         [](const auto& tested) { return std::string(dtype_name(tested.param)); });

// Panels of every fullness, tiles of every height, chunks of every length; against GGUF's bytes, without knowledge of panels.
TEST_P(GemmQuantTest, BitsEqualTheOracle) {
  const DType type = GetParam();
  for (const int64_t k : {32, 64, 96, 256, 288, 512, 1536}) {
    if (k % facts(type).block_elements != 0) continue;
    for (const int64_t n : {1, 3, 16, 17, 33, 63, 64, 65, 70, 129}) {
      if (k > 256 && n != 17 && n != 65) continue;
      const auto data = random_quant_matrix(type, n, k, static_cast<uint32_t>(n * 10000 + k));
      const auto w = pack(data);
      const auto x = gaussian(40 * k, 5);
      std::vector<float> expected;
      for (int64_t i = 0; i < 40; ++i) {
        const auto planes = planes_of(x.data() + i * k, k);
        for (int64_t j = 0; j < n && (n <= 33 || i < 13); ++j) {
          const auto* row = data.view().row(j);
          expected.push_back(ref::quantised_dot(type, row, planes[0]) + ref::quantised_dot(type, row, planes[1]));
        }
      }
      for (const CpuLevel level : integer_levels()) {
        for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 13, 40}) {
          auto got = multiply(*w, level, x, m);
          got.resize(std::min(got.size(), expected.size()));
          ASSERT_TRUE(same_bits(got, std::span(expected).first(got.size())))
              << cpu_level_name(level) << ", k " << k << ", n " << n << ", m " << m;
        }
      }
    }
  }
}

TEST_P(GemmQuantTest, OnePlaneIsTheCoarseOne) {
  const DType type = GetParam();
  const int64_t n = 70, k = 512;
  const auto data = random_quant_matrix(type, n, k, 15);
  const auto x = gaussian(100 * k, 16);
  for (const Planes planes : {Planes::kOne, Planes::kOneScale}) {
    const auto w = pack(data, planes);
    std::vector<float> expected;
    for (int64_t i = 0; i < 100; ++i) {
      std::vector<QuantisedBlock> row(k / 32);
      ref::quantise_row(x.data() + i * k, k, {.planes = planes}, row.data());
      for (int64_t j = 0; j < n; ++j) expected.push_back(ref::quantised_dot(type, data.view().row(j), row));
    }
    for (const CpuLevel level : integer_levels()) {
      for (const int64_t m : {1, 2, 3, 4, 5, 9, 33, 100}) {
        ASSERT_TRUE(same_bits(multiply(*w, level, x, m), rows_of(expected, 0, m, n))) << cpu_level_name(level) << ", m " << m;
      }
    }
  }
}

TEST_P(GemmQuantTest, RowsAreIndependentOfBatchAndThreads) {
  expect_rows_are_independent(*pack(random_quant_matrix(GetParam(), 200, 768, 21)), 200);
}

// Integers at their ends, with scales that are whole so that y is the integer sum itself: a saturating or wrapping kernel shows
// at once.
TEST_P(GemmQuantTest, ExtremeIntegersAreExact) {
  const DType type = GetParam();
  const int64_t k = 512, n = 80;  // four panels, which tiles take, and one more
  const bool of_parts = type == DType::kMXFP4 || (type >= DType::kIQ1_S && type <= DType::kIQ3_S);  // down to an eighth of d
  for (const int pattern : {0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0, -1, -2}) {
    auto data = random_quant_matrix(type, n, k, 31);
    for (size_t i = 0; i < data.bytes.size(); ++i) {
      if (pattern >= 0) data.bytes[i] = static_cast<std::byte>(pattern);
      if (pattern < 0) data.bytes[i] = static_cast<std::byte>((i + static_cast<size_t>(-pattern)) % 2 == 0 ? 0x80 : 0x7F);
    }
    for (size_t b = 0; b < data.bytes.size(); b += facts(type).block_bytes) {
      set_block_scales(type, data.bytes.data() + b, of_parts ? 8.0f : 1.0f, 1.0f);
    }
    const auto x = extreme_rows(k);
    const auto w = pack(data);
    for (const int64_t m : {1, 5}) {
      const auto y = multiply(*w, CpuLevel::kBase, x, m);
      for (const CpuLevel level : integer_levels())
        ASSERT_TRUE(same_bits(multiply(*w, level, x, m), y)) << cpu_level_name(level) << pattern;
      for (int64_t r = 0; r < m; ++r) {
        for (int64_t j = 0; j < n; ++j) {
          int64_t sum = 0, min_sum = 0;
          for (int64_t i = 0; i < k; ++i) {
            const auto e = ref::quant_element(type, data.view().row(j), i);
            const auto q = static_cast<int64_t>(x[r * k + i]);
            sum += e.integer * static_cast<int64_t>(e.scale) * q;
            min_sum += static_cast<int64_t>(e.min) * q;
          }
          if (std::abs(sum) + std::abs(min_sum) < (1 << 24)) {
            ASSERT_EQ(y[r * n + j], static_cast<float>(sum + min_sum)) << pattern << ", " << r;
          }
          ASSERT_EQ(y[r * n + j], planes_dot(type, data.view().row(j), x.data() + r * k, k));
        }
      }
    }
  }
}

// |y - exact| <= K/32 · 2^-23 · sum|terms|: each of K/32 blocks rounds its scale product and its sum (a minimum adds one rounding
// more).
TEST_P(GemmQuantTest, ErrorOfTheSumIsBounded) {
  const DType type = GetParam();
  const int64_t k = 2048, n = 48, m = 6;
  const auto data = random_quant_matrix(type, n, k, 41);
  const auto x = gaussian(m * k, 42);
  const auto y = multiply(*pack(data), cpu_level(), x, m);
  for (int64_t i = 0; i < m; ++i) {
    const auto planes = planes_of(x.data() + i * k, k);
    for (int64_t j = 0; j < n; ++j) {
      const auto coarse = ref::quantised_dot_double(type, data.view().row(j), planes[0]);
      const auto fine = ref::quantised_dot_double(type, data.view().row(j), planes[1]);
      const double bound = (k / 32 + 1) * 0x1p-23 * (coarse.magnitude + fine.magnitude);
      ASSERT_LE(std::fabs(y[i * n + j] - (coarse.value + fine.value)), bound);
    }
  }
}

// Against float x and the other decoder of the format: what 16-bit activations cost.
TEST_P(GemmQuantTest, EndToEndErrorIsSmall) {
  const auto data = random_quant_matrix(GetParam(), 64, 1536, 51);
  const double error = relative_error(*pack(data), 5, [&](int64_t j) {
    std::vector<float> row(1536);
    dequantise_row(GetParam(), data.view().row(j), 1536, row.data());
    return row;
  });
  EXPECT_LT(error, 5e-5);
}

TEST_P(GemmQuantTest, NonFiniteXStaysInItsRow) {
  expect_non_finite_x_stays_in_its_row(*pack(random_quant_matrix(GetParam(), 40, 512, 61)));
}

TEST_P(GemmQuantTest, Epilogue) { expect_epilogue(*pack(random_quant_matrix(GetParam(), 71, 256, 71)), {1, 3, 9}); }

TEST_P(GemmQuantTest, RowsQuantisedBeforeGiveTheSameBits) {
  expect_rows_quantised_before_give_the_same_bits(*pack(random_quant_matrix(GetParam(), 40, 512, 3)), {1, 2, 3, 97, 200});
}

TEST(GemmQuant, StridedViewsAndNothingBesideThem) { expect_views_are_kept(*pack(random_quant_matrix(DType::kQ4_0, 20, 96, 81))); }

TEST(GemmQuant, ScratchIsGivenBackAndDoesNotGrow) {
  expect_scratch_is_given_back(*pack(random_quant_matrix(DType::kQ4_K, 64, 512, 83)));
}

TEST(GemmQuant, PartsAreStackedInTheirOrder) {
  const int64_t k = 256;
  for (const DType type : kQuantTypes) {
    const auto a = random_quant_matrix(type, StackedParts::kRowsOfA, k, 101),
               b = random_quant_matrix(type, StackedParts::kRowsOfB, k, 102);
    const StackedParts stack;
    const WeightRows parts[] = {{a.view(), stack.reversed}, {b.view()}, {b.view(), stack.some}};
    ThreadPool pool(2);
    const auto w = pack_quantised(parts, pool);
    ASSERT_TRUE(w.ok());
    EXPECT_EQ((*w)->n(), 34);
    EXPECT_EQ((*w)->k(), k);
    EXPECT_EQ((*w)->size_bytes(), 3 * quant_form(type).panel_bytes(k / 32));
    EXPECT_EQ((*w)->format(), dtype_name(type));
    const auto source = [&](int64_t row) { return (stack.of_a(row) ? a : b).view().row(stack.source(row)); };
    std::vector<float> expected(k), got(k);
    for (int64_t row = 0; row < 34; ++row) {
      dequantise_row(type, source(row), k, expected.data());
      ASSERT_TRUE((*w)->read_row(row, got).ok());
      ASSERT_TRUE(same_bits(got, expected)) << row;
    }
    const auto x = gaussian(k, 103);
    const auto y = multiply(**w, cpu_level(), x, 1);
    for (int64_t row = 0; row < 34; ++row) EXPECT_EQ(y[row], planes_dot(type, source(row), x.data(), k)) << row;
  }
}

}  // namespace
}  // namespace choral::kernels
