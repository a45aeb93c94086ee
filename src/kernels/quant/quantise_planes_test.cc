#include "kernels/quant/quantise_planes.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/quant/row_quant.h"
#include "kernels/ref/quant.h"

namespace choral::kernels {
namespace {

using testing::Each;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<QuantisedBlock> quantise(CpuLevel level, const std::vector<float>& x,
                                     QuantiseOptions options = {.planes = Planes::kOne}) {
  std::vector<QuantisedBlock> out(plane_blocks(std::ssize(x)) * plane_count(options.planes));
  std::memset(static_cast<void*>(out.data()), 0xAB, out.size() * sizeof(QuantisedBlock));
  quantise_row(level, x.data(), std::ssize(x), options, out.data());
  return out;
}

class QuantiseRowsTest : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, QuantiseRowsTest, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& tested) { return std::string(cpu_level_name(tested.param)); });

TEST_P(QuantiseRowsTest, BitsEqualTheOracle) {
  for (const float size : {1.0f, 1e-30f, 3e-39f, 1e-43f, 1e30f}) {
    std::vector<float> x = gaussian(4096, 7);
    for (float& v : x) v *= size;
    for (const QuantiseOptions options : {QuantiseOptions{0, false, Planes::kOne},
                                          {8, false, Planes::kOne},
                                          {128, false, Planes::kOne},
                                          {32, true, Planes::kOne},
                                          {8, false, Planes::kOneScale},
                                          {32, true, Planes::kOneScale}}) {
      std::vector<QuantisedBlock> expected(x.size() / 32);
      ref::quantise_row(x.data(), std::ssize(x), options, expected.data());
      const auto got = quantise(GetParam(), x, options);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(QuantisedBlock)), 0) << size << " " << options.zero;
    }
  }
}

// s is 1 here, so q is x rounded: to even on ties, away from neither.
TEST_P(QuantiseRowsTest, TiesGoToEven) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;
  const float ties[] = {0.5f, 1.5f, 2.5f, 3.5f, -0.5f, -1.5f, -2.5f, 125.5f, 126.5f, 0.49999997f, -126.5f};
  const int expected[] = {0, 2, 2, 4, 0, -2, -2, 126, 126, 0, -126};
  std::copy(std::begin(ties), std::end(ties), x.begin() + 1);
  const auto got = quantise(GetParam(), x);
  EXPECT_EQ(got[0].scale, 1.0f);
  for (size_t i = 0; i < std::size(ties); ++i) EXPECT_EQ(got[0].q[1 + i], expected[i]) << ties[i];
}

// x / s and x * (1 / s) differ here: the definition divides.
TEST_P(QuantiseRowsTest, Divides) {
  int different = 0;
  for (uint32_t seed = 0; seed < 64; ++seed) {
    std::vector<float> x = gaussian(32, seed);
    float largest = 0.0f;
    for (const float v : x) largest = std::max(largest, std::fabs(v));
    const float s = largest / 127.0f;
    for (int i = 1; i < 32; ++i) x[i] = s * (static_cast<float>(i) + 0.5f);  // near ties
    x[0] = largest;
    const auto got = quantise(GetParam(), x);
    for (int i = 1; i < 32; ++i) {
      ASSERT_EQ(got[0].q[i], std::nearbyint(x[i] / s));
      different += std::nearbyint(x[i] / s) != std::nearbyint(x[i] * (1.0f / s));
    }
  }
  EXPECT_GT(different, 0);
}

// Values an ulp or two around (n + 1/2)·s, where a quotient that is not correctly rounded goes to the other side; scales on both
// sides of those that are divided by in another way, and blocks that share a group with a zero block and with a NaN.
TEST_P(QuantiseRowsTest, DividesExactlyNextToTies) {
  std::mt19937 random(3);
  std::vector<float> x(2048 + 96);
  for (int round = 0; round < 600; ++round) {
    for (size_t b = 0; b < x.size() / 32; ++b) {
      float* block = x.data() + b * 32;
      const int exponent = round % 3 == 0 ? static_cast<int>(random() % 240) - 130 : static_cast<int>(random() % 8) - 4;
      const float largest = std::ldexp(1.0f + static_cast<float>(random() & 0x7FFFFF) * 0x1p-23f, exponent);
      block[0] = largest;
      for (int i = 1; i < 32; ++i) {
        const double tie = static_cast<double>(static_cast<int>(random() % 253) - 126) + (random() % 2 == 0 ? 0.5 : -0.5);
        block[i] = static_cast<float>(largest / 127.0f * tie);
        for (auto steps = static_cast<int>(random() % 3); steps > 0; --steps) {
          block[i] = std::nextafter(block[i], random() % 2 == 0 ? 0.0f : largest);
        }
        block[i] = std::clamp(block[i], -largest, largest);
      }
      if (round % 5 == 0 && b % 23 == 7) std::fill_n(block, 32, 0.0f);
      if (round % 5 == 1 && b % 23 == 9) block[random() % 32] = kNan;
    }
    std::vector<QuantisedBlock> expected(x.size() / 32);
    ref::quantise_row(x.data(), std::ssize(x), {8, false}, expected.data());
    const auto got = quantise(GetParam(), x, {8, false, Planes::kOne});
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(QuantisedBlock)), 0) << "round " << round;
  }
}

// The second plane by its definition, in float: x - s·q with two roundings.
TEST_P(QuantiseRowsTest, TheFinePlaneIsOfWhatTheCoarseOneLeaves) {
  for (const float size : {1.0f, 1e-22f, 1e-36f, 1e-43f, 1e36f}) {
    auto x = gaussian(1056, 5);
    for (float& v : x) v *= size;
    x[700] = kNan;
    std::fill_n(x.begin() + 96, 32, 0.0f);
    std::vector<QuantisedBlock> expected(33);
    const auto planes = quantise(GetParam(), x, {8, true});
    const std::span coarse = std::span(planes).first(33), fine = std::span(planes).last(33);
    ref::quantise_row(x.data(), 1056, {8, true}, expected.data());
    EXPECT_EQ(std::memcmp(coarse.data(), expected.data(), 33 * sizeof(QuantisedBlock)), 0);
    for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] - coarse[i / 32].scale * static_cast<float>(coarse[i / 32].q[i % 32]);
    ref::quantise_row(x.data(), 1056, {8, true}, expected.data());
    EXPECT_EQ(std::memcmp(fine.data(), expected.data(), 33 * sizeof(QuantisedBlock)), 0) << size;
  }
}

// With what lies behind it unread.
TEST_P(QuantiseRowsTest, AShortLastBlockIsFollowedByZeros) {
  for (const int64_t k : {1, 5, 16, 31, 33, 48, 511, 513, 1000}) {
    for (const Planes planes : {Planes::kTwo, Planes::kOne, Planes::kOneScale}) {
      const auto row = gaussian(k, 3);
      auto padded = row;
      padded.resize(static_cast<size_t>(plane_blocks(k) * 32));
      const QuantiseOptions options{.zero = 8, .halves = true, .planes = planes};
      const auto got = quantise(GetParam(), row, options), expected = quantise(GetParam(), padded, options);
      ASSERT_EQ(got.size(), expected.size());
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(QuantisedBlock)), 0) << k;
      if (planes == Planes::kTwo) continue;
      std::vector<QuantisedBlock> of_oracle(got.size());
      ref::quantise_row(row.data(), k, options, of_oracle.data());
      EXPECT_EQ(std::memcmp(got.data(), of_oracle.data(), got.size() * sizeof(QuantisedBlock)), 0) << k;
    }
  }
}

TEST_P(QuantiseRowsTest, ZeroBlockIsZeroWithScaleZero) {
  const auto got = quantise(GetParam(), std::vector<float>(64, -0.0f), {.zero = 8, .planes = Planes::kOne});
  for (const auto& block : got) {
    EXPECT_THAT(block.q, Each(0));
    EXPECT_EQ(std::bit_cast<uint32_t>(block.scale), 0u);
    EXPECT_EQ(block.start[0], 0);
    EXPECT_EQ(block.sum, 0.0f);
  }
}

TEST_P(QuantiseRowsTest, NonFiniteBlocksAreNanAndNothingElseIs) {
  for (const float bad : {kInfinity, -kInfinity, kNan, -kNan}) {
    for (const int at : {32, 40, 63}) {
      std::vector<float> x(96, 1.0f);
      x[at] = bad;
      const auto got = quantise(GetParam(), x, {.zero = 8, .planes = Planes::kOne});
      EXPECT_TRUE(std::isnan(got[1].scale) && std::isnan(got[1].sum));
      EXPECT_THAT(got[1].q, Each(0));
      EXPECT_EQ(got[1].start[0], 0);
      EXPECT_THAT(got[0].q, Each(127));
      EXPECT_THAT(got[2].q, Each(127));
    }
  }
}

TEST_P(QuantiseRowsTest, ExtremesNeverGiveMinus128) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  for (const float size :
       {tiny, 63 * tiny, 64 * tiny, 100 * tiny, 190 * tiny, 191 * tiny, 1e-38f, 1.0f, std::numeric_limits<float>::max()}) {
    std::vector<float> x(32, -size);
    x[5] = size;
    const auto got = quantise(GetParam(), x);
    for (int i = 0; i < 32; ++i) {
      EXPECT_GE(got[0].q[i], -127);
      EXPECT_EQ(got[0].q[i], got[0].scale == 0.0f ? 0 : i == 5 ? got[0].q[5] : -got[0].q[5]);
    }
    EXPECT_EQ(got[0].q[5], size < 64 * tiny     ? 0
                           : size == 64 * tiny  ? 64
                           : size == 100 * tiny ? 100
                           : size == 191 * tiny ? 96
                                                : 127)
        << size;
  }
}

TEST_P(QuantiseRowsTest, StartsAndSums) {
  std::vector<float> x(32, 127.0f);
  for (int i = 16; i < 32; ++i) x[i] = -1.0f;
  const auto whole = quantise(GetParam(), x, {.zero = 8, .planes = Planes::kOne});
  EXPECT_EQ(whole[0].start[0], -8 * (16 * 127 - 16));
  EXPECT_EQ(whole[0].start[1], 0);
  EXPECT_EQ(whole[0].sum, 16 * 127 - 16);
  const auto halves = quantise(GetParam(), x, {.zero = 32, .halves = true, .planes = Planes::kOne});
  EXPECT_EQ(halves[0].start[0], -32 * 16 * 127);
  EXPECT_EQ(halves[0].start[1], 32 * 16);
}

TEST_P(QuantiseRowsTest, TwoPlanesCarrySixteenBits) {
  for (const float size : {1.0f, 1e-20f, 1e20f}) {
    auto x = gaussian(2048, 9);
    for (float& v : x) v *= size;
    const auto planes = quantise(GetParam(), x, {});
    const std::span coarse = std::span(planes).first(64), fine = std::span(planes).last(64);
    for (size_t b = 0; b < 64; ++b) {
      double largest = 0;
      for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(static_cast<double>(x[b * 32 + i])));
      for (size_t i = 0; i < 32; ++i) {
        const double sum =
            static_cast<double>(coarse[b].scale) * coarse[b].q[i] + static_cast<double>(fine[b].scale) * fine[b].q[i];
        ASSERT_LE(std::fabs(x[b * 32 + i] - sum), largest * 0x1.1p-16);  // 1 / (127 * 508)
      }
    }
  }
}

// The integers and the scale of a whole row are those of quant/row_quant.h, whatever its size.
TEST_P(QuantiseRowsTest, OneScaleIsTheDynamicRowsScale) {
  for (const float size : {1.0f, 1e-22f, 3e-39f, 1e-43f, 1e36f}) {
    auto x = gaussian(3 * 1056, 5);
    for (float& v : x) v *= size;
    std::fill_n(x.begin() + 96, 32, 0.0f);
    std::fill_n(x.begin() + 1056, 1056, 0.0f);
    x[2 * 1056 + 700] = kNan;
    ThreadPool pool(2);
    Arena scratch;
    std::vector<int8_t> q(x.size());
    std::vector<float> scale(3);
    dynamic_quant_rows({pool, GetParam(), scratch}, {x.data(), 3, 1056}, {q.data(), 3, 1056}, scale);
    std::vector<QuantisedBlock> got(3 * 33);
    quantise_planes(pool, GetParam(), {x.data(), 3, 1056}, {.zero = 8, .planes = Planes::kOneScale}, got.data());
    for (size_t b = 0; b < got.size(); ++b) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[b].scale), std::bit_cast<uint32_t>(scale[b / 33])) << size;
      ASSERT_EQ(std::memcmp(got[b].q, q.data() + 32 * b, 32), 0) << size << ", block " << b;
    }
  }
}

TEST_P(QuantiseRowsTest, RowsDoNotDependOnThreads) {
  const auto x = gaussian(40 * 2048, 3);
  ThreadPool pool1(1), pool2(2);
  for (const Planes planes : {Planes::kTwo, Planes::kOne, Planes::kOneScale}) {
    const auto row_blocks = static_cast<size_t>(plane_count(planes) * 62);
    std::vector<QuantisedBlock> one(40 * row_blocks), two(one.size());
    quantise_planes(pool1, GetParam(), {x.data(), 40, 1984, 2048}, {.planes = planes}, one.data());
    quantise_planes(pool2, GetParam(), {x.data(), 40, 1984, 2048}, {.planes = planes}, two.data());
    EXPECT_EQ(std::memcmp(one.data(), two.data(), one.size() * sizeof(QuantisedBlock)), 0);
    std::vector<QuantisedBlock> last(row_blocks);
    quantise_row(GetParam(), x.data() + 39 * 2048, 1984, {.planes = planes}, last.data());
    EXPECT_EQ(std::memcmp(last.data(), one.data() + 39 * row_blocks, row_blocks * sizeof(QuantisedBlock)), 0);
  }
}

}  // namespace
}  // namespace choral::kernels
