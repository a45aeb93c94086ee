#include "kernels/gemm/gemm_integers.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/gemm/gemm_integers_test_data.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/ref/quant.h"

namespace choral::kernels {
namespace {

std::unique_ptr<PackedMatrix> pack(const IntegerMatrixData& data) {
  ThreadPool pool(1);
  const IntegerPart part = data.part();
  auto packed = pack_integers({&part, 1}, data.kind.options, pool);
  CHORAL_CHECK(packed.ok(), packed.status().message());
  return std::move(*packed);
}

std::vector<float> multiply(const PackedMatrix& w, CpuLevel level, const std::vector<float>& x, int64_t m, int threads = 1) {
  ThreadPool pool(threads);
  Arena scratch;
  std::vector<float> y(static_cast<size_t>(m * w.n()), -7.0f);
  w.multiply({pool, level, scratch}, {x.data(), m, w.k()}, {}, {y.data(), m, w.n()});
  return y;
}

// A row of x as it is multiplied, by the oracle's own steps: coarse and, of two planes, what it leaves over.
std::vector<std::vector<QuantisedBlock>> planes_of(const IntegerMatrixData& data, const float* x) {
  const int64_t k = data.k;
  const Planes kind = data.kind.options.planes;
  std::vector<std::vector<QuantisedBlock>> planes(plane_count(kind), std::vector<QuantisedBlock>(static_cast<size_t>(k / 32)));
  ref::quantise_row(x, k, {.planes = kind}, planes[0].data());
  if (kind != Planes::kTwo) return planes;
  std::vector<float> rest;
  for (int64_t i = 0; i < k; ++i) {
    const auto& block = planes[0][static_cast<size_t>(i / 32)];
    rest.push_back(x[i] - block.scale * static_cast<float>(block.q[i % 32]));
  }
  ref::quantise_row(rest.data(), k, {}, planes[1].data());
  return planes;
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
  for (const int64_t k : {32, 96, 288, 512, 1056}) {
    for (const int64_t n : {1, 17, 33, 64, 70}) {
      if (k > 300 && n > 33 && n != 70) continue;
      const auto data = integer_matrix(n, k, GetParam(), IntegerFill::kRandom, static_cast<uint32_t>(k + n));
      const auto w = pack(data);
      const auto x = gaussian(33 * k, 2);
      const auto expected = oracle(data, x, 33);
      for (const CpuLevel level : levels()) {
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
  std::vector<float> x;
  for (const auto& value :
       {+[](int64_t) { return 127.0f; }, +[](int64_t) { return -127.0f; },
        +[](int64_t i) { return i % 2 == 0 ? 127.0f : -127.0f; }, +[](int64_t i) { return i % 3 == 0 ? -127.0f : 126.0f; },
        +[](int64_t i) { return i % 4 < 2 ? 127.0f : -127.0f; }}) {
    for (int64_t i = 0; i < k; ++i) x.push_back(value(i));
  }
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
    for (const CpuLevel level : levels()) {
      for (const int64_t rows : {1, 2, 5}) {
        const auto y = multiply(*w, level, x, rows);
        ASSERT_TRUE(same_bits(y, rows_of(expected, 0, rows, n))) << cpu_level_name(level) << ", fill " << static_cast<int>(fill);
      }
    }
  }
}

// Invariant 1: a row's bits depend neither on its batch, its place, nor on threads. 120 rows are more than one pass.
TEST_P(GemmIntegersTest, RowsAreIndependentOfBatchAndThreads) {
  const int64_t n = 200, k = 768, rows = 120;
  const auto w = pack(integer_matrix(n, k, GetParam(), IntegerFill::kRandom, 7));
  const auto x = gaussian(rows * k, 8);
  for (const CpuLevel level : levels()) {
    if (level == CpuLevel::kBase) continue;  // equal to the oracle above, and slow here
    const auto all = multiply(*w, level, x, rows, 2);
    EXPECT_TRUE(same_bits(all, multiply(*w, level, x, rows, 1)));
    for (int64_t i = 0; i < rows; i += 7) {
      const std::vector<float> one(x.begin() + i * k, x.begin() + (i + 1) * k);
      ASSERT_TRUE(same_bits(multiply(*w, level, one, 1), rows_of(all, i, 1, n))) << i;
    }
    for (const int64_t m : {2, 3, 4, 5, 6, 7, 8, 9, 33, 97}) {
      ASSERT_TRUE(same_bits(multiply(*w, level, x, m, 1 + static_cast<int>(m % 3)), rows_of(all, 0, m, n))) << m;
    }
  }
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
  const int64_t n = 40, k = 1536, m = 3;
  const auto w = pack(integer_matrix(n, k, GetParam(), IntegerFill::kRandom, 18));
  const auto x = gaussian(m * k, 19);
  const auto y = multiply(*w, cpu_level(), x, m);
  double error = 0, size = 0;
  std::vector<float> row(static_cast<size_t>(k));
  for (int64_t j = 0; j < n; ++j) {
    ASSERT_TRUE(w->read_row(j, row).ok());
    for (int64_t i = 0; i < m; ++i) {
      double exact = 0;
      for (int64_t c = 0; c < k; ++c)
        exact += static_cast<double>(row[static_cast<size_t>(c)]) * x[static_cast<size_t>(i * k + c)];
      const double difference = y[static_cast<size_t>(i * n + j)] - exact;
      error += difference * difference;
      size += exact * exact;
    }
  }
  const Planes planes = GetParam().options.planes;
  EXPECT_LT(std::sqrt(error / size), planes == Planes::kTwo ? 5e-5 : planes == Planes::kOne ? 0.0075 : 0.0105);
  EXPECT_GT(std::sqrt(error / size), planes == Planes::kTwo ? 0.0 : 0.003);
}

TEST_P(GemmIntegersTest, NonFiniteXStaysInItsRow) {
  const int64_t k = 256, n = 40;
  const auto w = pack(integer_matrix(n, k, GetParam(), IntegerFill::kRandom, 20));
  for (const CpuLevel level : levels()) {
    for (const int64_t m : {3, 9}) {
      const auto good = gaussian(m * k, 21);
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

TEST_P(GemmIntegersTest, RowsQuantisedBeforeGiveTheSameBits) {
  const int64_t n = 40, k = 512;
  const auto w = pack(integer_matrix(n, k, GetParam(), IntegerFill::kRandom, 22));
  for (const CpuLevel level : levels()) {
    for (const int64_t m : {1, 3, 97}) {  // direct, tiled, more than one pass
      const auto x = gaussian(m * k, 23);
      ThreadPool pool(2);
      Arena scratch;
      const QuantisedRows rows(scratch, *w->quantised_input(level), m, k);
      quantise_rows({pool, level, scratch}, {x.data(), m, k}, rows);
      std::vector<float> y(static_cast<size_t>(m * n), -7.0f);
      w->multiply_quantised({pool, level, scratch}, rows, {}, {y.data(), m, n});
      EXPECT_TRUE(same_bits(y, multiply(*w, level, x, m))) << cpu_level_name(level) << ", " << m << " rows";
    }
  }
}

}  // namespace
}  // namespace choral::kernels
