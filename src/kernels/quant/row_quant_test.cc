#include "kernels/quant/row_quant.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/ref/row_quant.h"

namespace choral::kernels {
namespace {

using testing::Each;

struct Rows {
  std::vector<int8_t> q;
  std::vector<float> scale;
  bool operator==(const Rows&) const = default;
};

class RowQuantTest : public testing::TestWithParam<CpuLevel> {
 protected:
  Rows quantise(MatrixView<const float> x) {
    Rows out{std::vector<int8_t>(x.rows * x.cols + 1, 99), std::vector<float>(x.rows)};
    dynamic_quant_rows({pool_, GetParam(), arena_}, x, {out.q.data(), x.rows, x.cols}, out.scale);
    EXPECT_EQ(out.q.back(), 99) << "wrote past the end";
    out.q.pop_back();
    return out;
  }

  ThreadPool pool_{2};
  Arena arena_;
};
INSTANTIATE_TEST_SUITE_P(Levels, RowQuantTest, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& tested) { return std::string(cpu_level_name(tested.param)); });

Rows oracle(MatrixView<const float> x) {
  Rows out{std::vector<int8_t>(x.rows * x.cols), std::vector<float>(x.rows)};
  ref::dynamic_quant_rows(x, {out.q.data(), x.rows, x.cols}, out.scale);
  return out;
}

TEST_P(RowQuantTest, BitsEqualTheOracleAtEveryWidthAndSize) {
  for (const int64_t cols : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 577, 2048}) {
    for (const float size : {1.0f, 1e-22f, 1e-23f, 1e-30f, 3e-39f, 1e-43f, 1e30f, 1e37f}) {  // either way of dividing
      auto x = gaussian(7 * (cols + 3), static_cast<uint32_t>(cols));
      for (float& v : x) v *= size;
      const MatrixView<const float> rows(x.data(), 7, cols, cols + 3);
      ASSERT_EQ(quantise(rows), oracle(rows)) << cols << " columns of " << size;
    }
  }
}

// Values an ulp or two around (n + 1/2)·s, where a quotient that is not correctly rounded goes to the other side.
TEST_P(RowQuantTest, DividesExactlyNextToTies) {
  std::mt19937 random(3);
  std::vector<float> x(4096);
  for (int round = 0; round < 300; ++round) {
    const float largest =
        std::ldexp(1.0f + static_cast<float>(random() & 0x7FFFFF) * 0x1p-23f, static_cast<int>(random() % 160) - 80);
    const float s = largest / 127.0f;
    x[0] = -largest;
    for (size_t i = 1; i < x.size(); ++i) {
      const double tie = static_cast<double>(static_cast<int>(random() % 253) - 126) + (random() % 2 == 0 ? 0.5 : -0.5);
      x[i] = static_cast<float>(s * tie);
      for (auto steps = static_cast<int>(random() % 3); steps > 0; --steps)
        x[i] = std::nextafter(x[i], random() % 2 == 0 ? 0.0f : 1e38f);
      x[i] = std::clamp(x[i], -largest, largest);
    }
    const MatrixView<const float> row(x.data(), 1, 4096);
    ASSERT_EQ(quantise(row), oracle(row)) << "largest " << largest;
  }
}

TEST_P(RowQuantTest, ZeroRowsAndRowsThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), NAN, -NAN}) {
    for (const int at : {0, 16, 32, 36}) {  // the last ones in a tail
      std::vector<float> x(4 * 37, 1.0f);
      std::fill_n(x.begin() + 37, 37, -0.0f);
      x[2 * 37 + at] = bad;
      const auto got = quantise({x.data(), 4, 37});
      EXPECT_EQ(std::bit_cast<uint32_t>(got.scale[1]), 0u);
      EXPECT_TRUE(std::isnan(got.scale[2]));
      for (int i = 0; i < 37; ++i) {
        EXPECT_EQ(got.q[37 + i], 0);
        EXPECT_EQ(got.q[2 * 37 + i], 0);
        EXPECT_EQ(got.q[i], 127);
        EXPECT_EQ(got.q[3 * 37 + i], 127);
      }
    }
  }
}

TEST_P(RowQuantTest, NeverMinus128) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  for (const float size : {63 * tiny, 64 * tiny, 190 * tiny, 1e-38f, 1.0f, std::numeric_limits<float>::max()}) {
    const std::vector<float> x(40, -size);
    EXPECT_THAT(quantise({x.data(), 1, 40}).q, Each(size == 63 * tiny ? 0 : size == 64 * tiny ? -64 : -127)) << size;
  }
}

class StaticRowQuantTest : public RowQuantTest {
 protected:
  Rows quantise(MatrixView<const float> x, StaticQuant quant) {
    Rows out{std::vector<int8_t>(x.rows * x.cols + 1, 99), std::vector<float>(x.rows)};
    quant_rows({pool_, GetParam(), arena_}, x, {quant}, {out.q.data(), x.rows, x.cols}, out.scale);
    EXPECT_EQ(out.q.back(), 99) << "wrote past the end";
    out.q.pop_back();
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Levels, StaticRowQuantTest, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& tested) { return std::string(cpu_level_name(tested.param)); });

Rows oracle(MatrixView<const float> x, StaticQuant quant) {
  Rows out{std::vector<int8_t>(x.rows * x.cols), std::vector<float>(x.rows)};
  ref::static_quant_rows(x, quant.scale, quant.offset, {out.q.data(), x.rows, x.cols}, out.scale);
  return out;
}

TEST_P(StaticRowQuantTest, BitsEqualTheOracleAtEveryWidthAndOffset) {
  for (const int64_t cols : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 577}) {
    const auto x = gaussian(7 * (cols + 3), static_cast<uint32_t>(cols));
    const MatrixView<const float> rows(x.data(), 7, cols, cols + 3);
    for (const float scale : {0.02f, 0.013f, 1e-30f, 1e-44f, 1e30f}) {  // within, and beyond every integer
      for (const int32_t offset : {-128, -5, 0, 33, 127}) {
        ASSERT_EQ(quantise(rows, {scale, offset}), oracle(rows, {scale, offset})) << cols << ", " << scale << ", " << offset;
      }
    }
  }
}

TEST_P(StaticRowQuantTest, TiesGoToEvenBeforeTheOffsetAndTheEndsAreInt8s) {
  const std::vector<float> x{0.25f, 0.75f, 1.25f, -0.25f, -0.75f, 63.5f, 64.0f, -64.0f, -64.25f, 3e38f, -3e38f, 0.0f, -0.0f};
  const auto got = quantise({x.data(), 1, 13}, {0.5f, 0});
  EXPECT_THAT(got.q, testing::ElementsAre(0, 2, 2, 0, -2, 127, 127, -128, -128, 127, -128, 0, 0));
  EXPECT_EQ(got.scale[0], 1.0f);
  EXPECT_THAT(quantise({x.data(), 1, 13}, {0.5f, 1}).q,
              testing::ElementsAre(1, 3, 3, 1, -1, 127, 127, -127, -127, 127, -128, 1, 1));
}

TEST_P(StaticRowQuantTest, RowsThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), NAN}) {
    for (const int at : {0, 16, 32, 36}) {
      std::vector<float> x(3 * 37, 1.0f);
      x[37 + at] = bad;
      const auto got = quantise({x.data(), 3, 37}, {0.5f, 3});
      EXPECT_TRUE(std::isnan(got.scale[1]));
      for (int i = 0; i < 37; ++i) {
        EXPECT_EQ(got.q[37 + i], 0);
        EXPECT_EQ(got.q[i], 5);
        EXPECT_EQ(got.q[2 * 37 + i], 5);
      }
    }
  }
}

}  // namespace
}  // namespace choral::kernels
