#include "kernels/gemm/gemm_fp8.h"

#include <random>
#include <string>

#include "base/checked_math.h"
#include "base/float8.h"
#include "kernels/gemm/gemm_float.h"
#include "kernels/gemm/pack_spec.h"
#include "kernels/gemm/packed_matrix_test.h"
#include "kernels/ref/fp8_gemm.h"
#include "kernels/ref/gemm.h"

namespace choral::kernels {
namespace {

using testing::HasSubstr;

// What codes a weight is made of.
enum class Fill { kRandom, kSubnormal, kEnds };
constexpr Fill kFills[] = {Fill::kRandom, Fill::kSubnormal, Fill::kEnds};

// A weight as a checkpoint has it.
struct Fp8Data {
  int64_t n, k, group_size;
  std::vector<uint8_t> codes;
  std::vector<float> scales;  // [n, groups]

  Fp8Data(int64_t rows, int64_t cols, int64_t group, Fill fill, uint32_t seed) : n(rows), k(cols), group_size(group) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < n * k; ++i) {
      const auto bits = static_cast<uint32_t>(random());
      const uint32_t magnitude = fill == Fill::kRandom ? (bits >> 8) % 0x7F : fill == Fill::kSubnormal ? (bits >> 8) % 8 : 0x7E;
      codes.push_back(static_cast<uint8_t>((bits & 0x80u) | magnitude));
    }
    std::uniform_real_distribution<float> scale(0.5f, 1.0f);
    for (int64_t i = 0; i < n * groups(); ++i) scales.push_back(std::ldexp(scale(random), -static_cast<int>(random() % 12)));
  }

  int64_t groups() const { return group_size == 0 ? 1 : ceil_div(k, group_size); }
  WeightRows rows() const {
    return {{reinterpret_cast<const std::byte*>(codes.data()), DType::kF8E4M3, Shape{n, k}, kCpuDevice}, {}};
  }
  Fp8Part part() const { return {rows(), scales}; }
  std::vector<float> weight() const {
    std::vector<float> w(n * k);
    ref::fp8_weight({codes.data(), n, k}, group_size == 0 ? k : group_size, {scales.data(), n, groups()}, {w.data(), n, k});
    return w;
  }
};

std::unique_ptr<PackedMatrix> pack(const std::vector<Fp8Part>& parts, int64_t group_size = 0) {
  ThreadPool pool(2);
  return packed_or_die(pack_fp8(parts, group_size, pool));
}

std::unique_ptr<PackedMatrix> pack_f32(const std::vector<float>& w, int64_t n, int64_t k) {
  ThreadPool pool(1);
  const WeightRows part{{reinterpret_cast<const std::byte*>(w.data()), DType::kF32, {n, k}, kCpuDevice}, {}};
  return std::move(*pack_float({&part, 1}, DType::kF32, pool));
}

class GemmFp8 : public testing::TestWithParam<CpuLevel> {
 protected:
  // The rows [first, first + m) of x times w.
  std::vector<float> multiply(const PackedMatrix& w, const std::vector<float>& x, int64_t m, int64_t first = 0,
                              bool two_threads = false) {
    std::vector<float> y(m * w.n());
    w.multiply({two_threads ? two_ : one_, GetParam(), arena_}, {x.data() + first * w.k(), m, w.k()}, {}, {y.data(), m, w.n()});
    return y;
  }

  ThreadPool one_{1}, two_{2};
  Arena arena_;
};

// The definition, its chain and its bound: |error| <= K · 2^-24 · Σ|x·W|, and half a unit of each W for its one rounding.
TEST_P(GemmFp8, IsTheChainOverTheRoundedWeight) {
  const auto step = GetParam() == CpuLevel::kBase ? ref::Step::kApart : ref::Step::kFused;
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1},    {15, 2},   {16, 31},  {17, 33},  {33, 96},  {48, 127},
                                                {65, 128}, {70, 129}, {40, 257}, {20, 600}, {50, 1000}};
  for (const auto& [n, k] : shapes) {
    for (const int64_t group : {0, 32, 96, 128, 320}) {
      for (const Fill fill : kFills) {
        if (group > k && fill != Fill::kRandom) continue;  // one group, as with 0
        const Fp8Data data(n, k, group, fill, static_cast<uint32_t>(n * 1000 + k));
        const auto packed = pack({data.part()}, group);
        const auto weight = data.weight();
        for (const int64_t m : {1, 7, 15}) {
          const auto x = gaussian(m * k, static_cast<uint32_t>(m)), y = multiply(*packed, x, m);
          std::vector<float> chain(m * n);
          ref::gemm_in_order({x.data(), m, k}, {weight.data(), n, k}, step, {chain.data(), m, n});
          ASSERT_TRUE(same_bits(y, chain)) << m << " x " << n << " x " << k << " in groups of " << group;
          for (int64_t i = 0; i < m * n; ++i) {
            double exact = 0, magnitude = 0;
            for (int64_t at = 0; at < k; ++at) {
              const int64_t j = i % n;
              const double code = to_float(Float8E4M3{data.codes[j * k + at]});
              const double scale = data.scales[j * data.groups() + (group == 0 ? 0 : at / group)];
              exact += static_cast<double>(x[i / n * k + at]) * (code * scale);
              magnitude += std::fabs(static_cast<double>(x[i / n * k + at]) * code * scale);
            }
            ASSERT_LE(std::fabs(y[i] - exact), static_cast<double>(k + 1) * 0x1p-24 * magnitude);
          }
        }
      }
    }
  }
}

TEST_P(GemmFp8, HasTheBitsOfTheWeightAsFloat32) {
  for (const int64_t group : {0, 128}) {
    const Fp8Data data(150, 700, group, Fill::kRandom, 5);
    const auto packed = pack({data.part()}, group), wide = pack_f32(data.weight(), 150, 700);
    const auto x = gaussian(80 * 700, 6);
    for (const int64_t m : {1, 2, 13, 33, 80}) ASSERT_TRUE(same_bits(multiply(*packed, x, m), multiply(*wide, x, m))) << m;
  }
}

// Invariant 1: a row alone is the row in any company, whatever the threads and the cuts of rows and k.
TEST_P(GemmFp8, RowsDoNotDependOnTheirNumberOrTheThreads) {
  const int64_t n = 150, k = 1100, most = 260;
  const auto x = gaussian(most * k, 9);
  for (const int64_t group : {0, 32, 96, 128, 576}) {
    const Fp8Data data(n, k, group, Fill::kRandom, 8);
    const auto w = pack({data.part()}, group);
    std::vector<float> alone;
    for (int64_t i = 0; i < most; ++i) {
      const auto y = multiply(*w, x, 1, i);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (const int64_t m : {2, 5, 6, 7, 12, 13, 14, 15, 29, 57, 70, 260}) {
      for (const bool two_threads : {false, true}) {
        const auto y = multiply(*w, x, m, most - m, two_threads);
        ASSERT_TRUE(same_bits(y, std::span(alone).subspan((most - m) * n, m * n))) << m << " rows, groups of " << group;
      }
    }
  }
}

TEST_P(GemmFp8, EveryCodeAndEveryScaleIsMultipliedExactly) {
  std::vector<uint8_t> codes;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) != 0x7F) codes.push_back(static_cast<uint8_t>(code));
  }
  const auto n = std::ssize(codes);
  const std::vector<float> x{1.0f};
  for (const float scale : {1.0f, -0.3f, 0.0f, 1.17e-5f, 0x1p119f, -0x1p119f, 0x1p-126f, 0x1p-140f}) {
    const std::vector<float> scales(n, scale);
    const auto w = pack({{{{reinterpret_cast<const std::byte*>(codes.data()), DType::kF8E4M3, {n, 1}, kCpuDevice}, {}}, scales}});
    const auto y = multiply(*w, x, 1);
    for (int64_t j = 0; j < n; ++j) {
      std::vector<float> row(1);
      ASSERT_TRUE(w->read_row(j, row).ok());
      ASSERT_EQ(y[j], to_float(Float8E4M3{codes[j]}) * scale) << static_cast<int>(codes[j]) << " by " << scale;
      ASSERT_EQ(row[0], y[j]);
    }
  }
}

TEST_P(GemmFp8, AllocatesNothingOnceWarm) {
  const Fp8Data data(70, 300, 128, Fill::kRandom, 1);
  const auto w = pack({data.part()}, 128);
  const auto x = gaussian(100 * 300, 2);
  for (const int64_t m : {1, 9, 100}) {
    multiply(*w, x, m, 0, true);
    const int64_t grown = arena_.grown();
    multiply(*w, x, m, 0, true);
    EXPECT_EQ(arena_.grown(), grown);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, GemmFp8, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& test) { return std::string(cpu_level_name(test.param)); });

TEST(PackFp8, PartsAreStackedInTheirOrder) {
  for (const int64_t group : {0, 32}) {
    const int64_t k = 71;
    const StackedParts stack;
    const Fp8Data a(stack.kRowsOfA, k, group, Fill::kRandom, 1), b(stack.kRowsOfB, k, group, Fill::kEnds, 2);
    const auto w = pack(stack.parts(a.part(), b.part()), group);
    EXPECT_EQ(w->n(), 34);
    EXPECT_EQ(w->size_bytes(), 3 * (a.groups() * 64 + 72 * 16));
    const auto of_a = a.weight(), of_b = b.weight();
    for (int64_t row = 0; row < 34; ++row) {
      std::vector<float> got(k);
      ASSERT_TRUE(w->read_row(row, got).ok());
      EXPECT_TRUE(same_bits(got, rows_of(stack.of_a(row) ? of_a : of_b, stack.source(row), 1, k))) << row;
    }
  }
}

TEST(PackFp8, ASpecMakesTheSameMatrix) {
  const Fp8Data a(5, 70, 32, Fill::kRandom, 1), b(3, 70, 32, Fill::kRandom, 2);
  const std::vector<WeightRows> rows{a.rows(), b.rows()};
  auto scales = a.scales;
  scales.insert(scales.end(), b.scales.begin(), b.scales.end());
  ThreadPool pool(1);
  const PackSpec spec{.rows = rows, .format = DType::kF8E4M3, .group_size = 32, .scales = scales};
  const auto packed = pack_weight(spec, pool);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  const auto expected = pack({a.part(), b.part()}, 32);
  std::vector<float> got(70), wanted(70);
  for (int64_t row = 0; row < 8; ++row) {
    ASSERT_TRUE((*packed)->read_row(row, got).ok() && expected->read_row(row, wanted).ok());
    EXPECT_EQ(got, wanted);
  }
  scales.pop_back();
  EXPECT_THAT(pack_weight({.rows = rows, .format = DType::kF8E4M3, .group_size = 32, .scales = scales}, pool).status().message(),
              HasSubstr("23 scales for more than 15 groups of weights"));
}

TEST(PackFp8, WrongPartsAreRefusedByName) {
  ThreadPool pool(1);
  const auto error = [&](const std::vector<Fp8Part>& parts, int64_t group_size = 0) {
    return refusal(pack_fp8(parts, group_size, pool));
  };
  const Fp8Data data(4, 64, 0, Fill::kRandom, 1), wide(4, 96, 0, Fill::kRandom, 2);
  const Fp8Part good = data.part();
  expect_wrong_parts_are_refused(good, wide.part(), "an fp8 weight", error);
  EXPECT_THAT(error({good}, 32), HasSubstr("4 rows with 2 each need 8"));
  EXPECT_THAT(error({good}, 48), HasSubstr("not in groups of 48"));
  EXPECT_THAT(error({good}, -32), HasSubstr("not in groups of -32"));
  auto scales = data.scales;
  scales[2] = 0x1.8p119f;
  Fp8Part bad = good;
  bad.scales = scales;
  EXPECT_THAT(error({good, bad}), HasSubstr(fmt::format("part 1 has a scale of {} for row 2", scales[2])));
}

TEST(PackFp8, ACodeThatIsANaNIsRefusedWithItsRow) {
  ThreadPool pool(2);
  for (const uint8_t nan : {uint8_t{0x7F}, uint8_t{0xFF}}) {
    const Fp8Data good(3, 70, 0, Fill::kRandom, 1);
    Fp8Data bad(40, 70, 0, Fill::kRandom, 2);
    bad.codes[39 * 70 + 69] = bad.codes[17 * 70] = nan;
    const auto packed = pack_fp8(std::vector<Fp8Part>{good.part(), bad.part()}, 0, pool);
    ASSERT_FALSE(packed.ok());
    EXPECT_EQ(packed.status().code(), Code::kCorrupt);
    EXPECT_THAT(packed.status().message(), HasSubstr("part 1 of an fp8 weight holds a NaN in row 17"));
  }
}

TEST(PackFp8, NamesSayWhatRuns) {
  const Fp8Data whole(4, 64, 0, Fill::kRandom, 1), grouped(4, 64, 32, Fill::kRandom, 1);
  EXPECT_EQ(pack({whole.part()})->format(), "fp8");
  const auto w = pack({grouped.part()}, 32);
  EXPECT_EQ(w->format(), "fp8 in groups of 32");
  for (const CpuLevel level : usable_cpu_levels()) {
    EXPECT_EQ(w->kernel_name(level), fmt::format("fp8 in groups of 32 x f32, {}", float_kernels(level).name));
    EXPECT_FALSE(w->quantised_input(level)) << "x stays float";
  }
}

}  // namespace
}  // namespace choral::kernels
