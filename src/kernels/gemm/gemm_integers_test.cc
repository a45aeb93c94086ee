#include "kernels/gemm/gemm_integers.h"

#include "kernels/gemm/gemm_integers_test_data.h"
#include "kernels/gemm/packed_matrix_test.h"

namespace choral::kernels {
namespace {

std::unique_ptr<PackedMatrix> pack(const IntegerMatrixData& data) {
  ThreadPool pool(1);
  const IntegerPart part = data.part();
  return packed_or_die(pack_integers({&part, 1}, data.kind.options, pool));
}

std::vector<std::vector<QuantisedBlock>> planes_of(const IntegerMatrixData& data, const float* x) {
  return planes_of(x, data.k, data.kind.options.planes);
}

std::vector<float> oracle(const IntegerMatrixData& data, const std::vector<float>& x, int64_t m) {
  std::vector<float> y;
  for (int64_t i = 0; i < m; ++i) {
    const auto planes = planes_of(data, x.data() + i * data.k);
    for (int64_t j = 0; j < data.n; ++j) {
      y.push_back(ref::integer_dot(data.reference(), j, planes[0]));
      if (planes.size() == 2) y.back() += ref::integer_dot(data.reference(), j, planes[1]);
    }
  }
  return y;
}

std::vector<IntegerKind> kinds() {
  std::vector<IntegerKind> out;
  for (const int64_t group : {32, 64, 96, 128, 256, 0}) {
    for (const int bits : {4, 8}) {
      for (const bool with_zeros : {false, true}) out.push_back({{.bits = bits, .group_size = group}, with_zeros});
    }
    out.push_back({{.bits = 4, .group_size = group, .codebook = Codebook::kE2M1}, false});
  }
  for (const Planes planes : {Planes::kOne, Planes::kOneScale}) {
    for (const int bits : {4, 8}) {
      for (const bool with_zeros : {false, true}) {
        out.push_back({{.bits = bits, .group_size = 128, .planes = planes}, with_zeros});
      }
    }
  }
  return out;
}

class GemmIntegersTest : public testing::TestWithParam<IntegerKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, GemmIntegersTest, testing::ValuesIn(kinds()), [](const auto& tested) {
  const IntegerOptions& options = tested.param.options;
  return fmt::format("{}{}{}Of{}{}", options.codebook == Codebook::kE2M1 ? "E2M1" : "Int", options.bits,
                     tested.param.with_zeros ? "WithZeros" : "", options.group_size,
                     options.planes == Planes::kTwo   ? ""
                     : options.planes == Planes::kOne ? "OnePlane"
                                                      : "OneScale");
});

// Panels of every fullness, tiles of every height, groups and chunks that end early.
TEST_P(GemmIntegersTest, BitsEqualTheOracle) {
  for (const int64_t k : {5, 32, 48, 96, 288, 512, 1025, 1056}) {
    for (const int64_t n : {1, 17, 33, 64, 70}) {
      if (k > 300 && n > 33 && n != 70) continue;
      const auto data = integer_matrix(n, k, GetParam(), IntegerFill::kRandom, static_cast<uint32_t>(k + n));
      const auto w = pack(data);
      const auto x = gaussian(33 * k, 2);
      const auto expected = oracle(data, x, 33);
      for (const CpuLevel level : integer_levels()) {
        for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 33}) {
          if (level == CpuLevel::kBase && m > 2 && m < 33) continue;
          ASSERT_TRUE(same_bits(multiply(*w, level, x, m), rows_of(expected, 0, m, n)))
              << cpu_level_name(level) << ", k " << k << ", n " << n << ", m " << m;
        }
      }
    }
  }
}

// With scales of 1 y is the integer sum itself: a saturating or wrapping kernel shows at once.
TEST_P(GemmIntegersTest, ExtremeIntegersAreExact) {
  const int64_t n = 70, k = 512, m = 5;
  const auto x = extreme_rows(k);
  for (const IntegerFill fill : kIntegerFills) {
    auto data = integer_matrix(n, k, GetParam(), fill, 3);
    data.scales.assign(data.scales.size(), 1.0f);
    const auto w = pack(data);
    const auto of_w = data.reference();
    std::vector<float> expected;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        int64_t doubled = 0, most = 0;  // halves of E2M1 are whole
        for (int64_t c = 0; c < k; ++c) {
          const int v = of_w.value(j, c) * (of_w.e2m1 ? 1 : 2), zero = 2 * static_cast<int>(-of_w.min(j, c));
          doubled += static_cast<int64_t>(x[static_cast<size_t>(i * k + c)]) * (v - zero);
          most += 127 * (std::abs(v) + std::abs(zero));
        }
        ASSERT_LE(most, 1 << 25);  // so the floats are exact on the way as well
        expected.push_back(0.5f * static_cast<float>(doubled));
      }
    }
    for (const CpuLevel level : integer_levels()) {
      for (const int64_t rows : {1, 2, 5}) {
        const auto y = multiply(*w, level, x, rows);
        ASSERT_TRUE(same_bits(y, rows_of(expected, 0, rows, n))) << cpu_level_name(level) << ", fill " << static_cast<int>(fill);
      }
    }
  }
}

TEST_P(GemmIntegersTest, RowsAreIndependentOfBatchAndThreads) {
  expect_rows_are_independent(*pack(integer_matrix(200, 768, GetParam(), IntegerFill::kRandom, 7)), 120);
}

// |y - exact| <= (K/32 + 1) · 2^-23 · sum|terms|, for x as it is quantised: each of K/32 blocks rounds its scale product and its
// sum, and the same for the zero points' terms; the planes' sum rounds once more.
TEST_P(GemmIntegersTest, ErrorOfTheSumIsBounded) {
  const int64_t n = 48, k = 2048, m = 3;
  const auto data = integer_matrix(n, k, GetParam(), IntegerFill::kRandom, 16);
  const auto of_w = data.reference();
  const auto x = gaussian(m * k, 17);
  const auto y = multiply(*pack(data), cpu_level(), x, m);
  for (int64_t i = 0; i < m; ++i) {
    const auto planes = planes_of(data, x.data() + i * k);
    for (int64_t j = 0; j < n; ++j) {
      double exact = 0, magnitude = 0;
      for (int64_t c = 0; c < k; ++c) {
        const double scale = data.scales[static_cast<size_t>(j * data.groups() + c / data.group())];
        const double v = of_w.value(j, c) * (of_w.e2m1 ? 0.5 : 1.0);
        const double zero = data.zeros.empty() ? 0.0 : data.zeros[static_cast<size_t>(j * data.groups() + c / data.group())];
        for (const auto& plane : planes) {
          const QuantisedBlock& block = plane[static_cast<size_t>(c / 32)];
          const double q = static_cast<double>(block.q[c % 32]) * block.scale;
          exact += scale * (v - zero) * q;
          magnitude += scale * (std::fabs(v * q) + std::fabs(zero * q));
        }
      }
      ASSERT_LE(std::fabs(y[static_cast<size_t>(i * n + j)] - exact), (k / 32 + 1) * 0x1p-23 * magnitude);
    }
  }
}

// What activations of 16 bits cost, and of 8, against the float W and x. Rounding errors of x of up to half a step, 1/254 of the
// largest |x| of a scale's 32 or 1536 (about 2.5 and 3.5 for these), are 1/254 · 2.5 / sqrt(3) = 0.0057 and 0.008 of x.
TEST_P(GemmIntegersTest, EndToEndErrorIsSmall) {
  const auto w = pack(integer_matrix(40, 1536, GetParam(), IntegerFill::kRandom, 18));
  const double error = relative_error(*w, 3, [&](int64_t j) {
    std::vector<float> row(1536);
    EXPECT_TRUE(w->read_row(j, row).ok());
    return row;
  });
  const Planes planes = GetParam().options.planes;
  EXPECT_LT(error, planes == Planes::kTwo ? 5e-5 : planes == Planes::kOne ? 0.0075 : 0.0105);
  EXPECT_GT(error, planes == Planes::kTwo ? 0.0 : 0.003);
}

TEST_P(GemmIntegersTest, NonFiniteXStaysInItsRow) {
  expect_non_finite_x_stays_in_its_row(*pack(integer_matrix(40, 256, GetParam(), IntegerFill::kRandom, 20)));
}

TEST_P(GemmIntegersTest, RowsQuantisedBeforeGiveTheSameBits) {
  expect_rows_quantised_before_give_the_same_bits(*pack(integer_matrix(40, 512, GetParam(), IntegerFill::kRandom, 22)),
                                                  {1, 3, 97});
}

}  // namespace
}  // namespace choral::kernels
