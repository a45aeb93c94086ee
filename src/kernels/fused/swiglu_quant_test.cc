#include "kernels/fused/swiglu_quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/quant/row_quant.h"
#include "kernels/ref/swiglu_quant.h"

namespace choral::kernels {
namespace {

class SwigluQuantTest : public testing::TestWithParam<CpuLevel> {
 protected:
  Context ctx() { return {pool_, GetParam(), arena_}; }

  ThreadPool pool_{2};
  Arena arena_;
};
INSTANTIATE_TEST_SUITE_P(Levels, SwigluQuantTest, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& tested) { return std::string(cpu_level_name(tested.param)); });

// Widths around a vector and around a piece of work, and one row, whose columns are divided over the threads.
constexpr int64_t kWidths[] = {1, 3, 8, 15, 16, 17, 33, 65, 2048, 2049, 5000};

TEST_P(SwigluQuantTest, DynamicIsTheCompositionToTheBit) {
  for (const int64_t n : kWidths) {
    for (const int64_t rows : {1, 9}) {
      const auto x = gaussian(rows * 2 * n, 1);
      const Arena::Mark mark(arena_);
      std::vector<float> expected_y(rows * n), expected_scale(rows);
      std::vector<int8_t> expected_q(rows * n);
      const QuantisedRows got(arena_, {.kind = RowForm::Kind::kInt8}, rows, n);
      const auto q_of = [&] { return std::vector<int8_t>(got.q().data, got.q().data + rows * n); };
      silu_and_mul(ctx(), {x.data(), rows, 2 * n}, {expected_y.data(), rows, n});
      dynamic_quant_rows(ctx(), {expected_y.data(), rows, n}, {expected_q.data(), rows, n}, expected_scale);
      silu_and_mul_quantise(ctx(), {x.data(), rows, 2 * n}, got);
      EXPECT_EQ(q_of(), expected_q) << n;
      EXPECT_EQ(std::vector<float>(got.scale().begin(), got.scale().end()), expected_scale);

      auto in_place = x;  // the float row wanted, over the left half
      std::fill_n(got.q().data, rows * n, int8_t{0});
      silu_and_mul_quantise(ctx(), {in_place.data(), rows, 2 * n}, got, {in_place.data(), rows, n, 2 * n});
      for (int64_t i = 0; i < rows * n; ++i) ASSERT_EQ(in_place[i / n * 2 * n + i % n], expected_y[i]);
      EXPECT_EQ(q_of(), expected_q);
    }
  }
}

TEST_P(SwigluQuantTest, StaticIsTheCompositionToTheBit) {
  const RowForm form{.kind = RowForm::Kind::kInt8, .int8 = {StaticQuant{.scale = 0.02f, .offset = 3}}};
  for (const int64_t n : kWidths) {
    for (const int64_t rows : {1, 9}) {
      const Arena::Mark mark(arena_);
      auto x = gaussian(rows * 2 * n, 1);
      std::vector<float> expected_y(rows * n);
      const QuantisedRows expected(arena_, form, rows, n), got(arena_, form, rows, n);
      silu_and_mul(ctx(), {x.data(), rows, 2 * n}, {expected_y.data(), rows, n});
      quantise_rows(ctx(), {expected_y.data(), rows, n}, expected);
      for (const bool want_floats : {false, true}) {  // over the left half
        silu_and_mul_quantise(ctx(), {x.data(), rows, 2 * n}, got,
                              want_floats ? MatrixView<float>(x.data(), rows, n, 2 * n) : MatrixView<float>{});
        EXPECT_EQ(std::memcmp(got.q().data, expected.q().data, rows * n), 0) << n;
        EXPECT_EQ(std::memcmp(got.scale().data(), expected.scale().data(), expected.scale().size_bytes()), 0);
      }
    }
  }
}

TEST_P(SwigluQuantTest, PlanesAreTheCompositionToTheBit) {
  for (const int64_t n : {5, 32, 48, 96, 512, 2048, 2080, 4096, 5000}) {
    for (const QuantiseOptions options :
         {QuantiseOptions{8, false}, {32, true}, {8, false, Planes::kOne}, {32, true, Planes::kOneScale}}) {
      for (const int64_t rows : {1, 5}) {  // one row may be divided by columns
        const auto x = gaussian(rows * 2 * n, 2);
        std::vector<float> y(rows * n), expected_y(rows * n);
        const Arena::Mark mark(arena_);
        const QuantisedRows rows_of(arena_, {.kind = RowForm::Kind::kPlanes, .planes = options}, rows, n);
        const auto got = rows_of.planes();
        std::vector<QuantisedBlock> expected(got.size());
        silu_and_mul(ctx(), {x.data(), rows, 2 * n}, {expected_y.data(), rows, n});
        quantise_planes(pool_, GetParam(), {expected_y.data(), rows, n}, options, expected.data());
        silu_and_mul_quantise(ctx(), {x.data(), rows, 2 * n}, rows_of);
        EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size_bytes()), 0) << n;
        std::fill(got.begin(), got.end(), QuantisedBlock{});
        silu_and_mul_quantise(ctx(), {x.data(), rows, 2 * n}, rows_of, {y.data(), rows, n});
        EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size_bytes()), 0) << n;
        EXPECT_EQ(y, expected_y);
      }
    }
  }
}

// Sums of an int8 product of rows in three groups, the second one empty.
struct Case {
  int64_t rows, n;
  std::vector<int32_t> sums;
  std::vector<float> weight_scale, row_scale, smooth;
  std::vector<int64_t> counts;

  Case(int64_t r, int64_t width)
      : rows(r), n(width), sums(r * 2 * width), weight_scale(3 * 2 * width), smooth(gaussian(3 * width, 3)) {
    std::mt19937 random(5);
    for (int32_t& s : sums) s = static_cast<int32_t>(random() % 200001) - 100000;
    for (float& s : weight_scale) s = 1e-3f * (1.0f + static_cast<float>(random() % 100));
    for (int64_t t = 0; t < r; ++t) row_scale.push_back(2e-3f * static_cast<float>(1 + random() % 10));
    counts = {r / 3, 0, r - r / 3};
  }
  Int8Product product(int64_t groups) const {
    return {{sums.data(), rows, 2 * n}, {weight_scale.data(), groups, 2 * n}, row_scale};
  }
};

struct Result {
  std::vector<int8_t> q;
  std::vector<float> scale, y;
  explicit Result(const Case& c) : q(c.rows * c.n), scale(c.rows), y(c.rows * c.n) {}
  MatrixView<int8_t> q_view(const Case& c) { return {q.data(), c.rows, c.n}; }
  MatrixView<float> y_view(const Case& c) { return {y.data(), c.rows, c.n}; }
};

// Each step as the separate kernels and plain float loops have it.
Result composed(const Context& ctx, const Case& c, int64_t groups, SiluHalf half, bool smooth) {
  std::vector<float> a(c.sums.size());
  Result out(c);
  const auto group_of = [&](int64_t t) { return groups == 1 || t < c.counts[0] ? 0 : 2; };
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t i = 0; i < 2 * c.n; ++i) {
      const float scaled = static_cast<float>(c.sums[t * 2 * c.n + i]) * c.weight_scale[group_of(t) * 2 * c.n + i];
      a[t * 2 * c.n + i] = scaled * c.row_scale[t];
    }
  }
  const MatrixView<const float> all(a.data(), c.rows, 2 * c.n);
  const auto left = all.sub_cols(0, c.n), right = all.sub_cols(c.n, c.n);
  activation_and_mul(ctx, Activation::kSilu, half == SiluHalf::kLeft ? left : right, half == SiluHalf::kLeft ? right : left,
                     out.y_view(c));
  auto smoothed = out.y;
  for (int64_t i = 0; i < c.rows * c.n && smooth; ++i) smoothed[i] *= c.smooth[group_of(i / c.n) * c.n + i % c.n];
  dynamic_quant_rows(ctx, {smoothed.data(), c.rows, c.n}, out.q_view(c), out.scale);
  return out;
}

TEST_P(SwigluQuantTest, DequantisedIsTheCompositionToTheBit) {
  for (const int64_t n : kWidths) {
    for (const int64_t rows : {1, 10}) {
      const Case c(rows, n);
      for (const SiluHalf half : {SiluHalf::kLeft, SiluHalf::kRight}) {
        for (const int64_t groups : {1, 3}) {
          for (const bool smooth : {false, true}) {
            const Result expected = composed(ctx(), c, groups, half, smooth);
            const RowGroups by_count(GroupCounts{c.counts});
            const auto smooth_view = smooth ? MatrixView<const float>(c.smooth.data(), groups, c.n) : MatrixView<const float>{};
            Result got(c), floats(c);
            dequant_swiglu_quant(ctx(), c.product(groups), half, smooth_view, groups == 1 ? nullptr : &by_count, got.q_view(c),
                                 got.scale);
            EXPECT_EQ(got.q, expected.q) << n << " wide, groups " << groups << ", smooth " << smooth;
            EXPECT_EQ(got.scale, expected.scale);
            dequant_swiglu_quant(ctx(), c.product(groups), half, smooth_view, groups == 1 ? nullptr : &by_count, floats.q_view(c),
                                 floats.scale, floats.y_view(c));
            EXPECT_EQ(floats.y, expected.y) << "the float row is the one before smooth";
            EXPECT_EQ(floats.q, expected.q);
          }
        }
      }
    }
  }
}

TEST_P(SwigluQuantTest, AgreesWithTheOracleButForTies) {
  const Case c(64, 1000);
  for (const SiluHalf half : {SiluHalf::kLeft, SiluHalf::kRight}) {
    Result got(c), expected(c);
    const RowGroups groups(GroupCounts{c.counts});
    const MatrixView<const float> smooth(c.smooth.data(), 3, c.n);
    dequant_swiglu_quant(ctx(), c.product(3), half, smooth, &groups, got.q_view(c), got.scale, got.y_view(c));
    ref::dequant_swiglu_quant(c.product(3), half, smooth, &groups, expected.q_view(c), expected.scale, expected.y_view(c));
    int64_t ties = 0;
    for (size_t i = 0; i < got.q.size(); ++i) {
      ASSERT_LE(std::abs(got.q[i] - expected.q[i]), 1);
      ties += got.q[i] != expected.q[i];
    }
    EXPECT_LE(ties, std::ssize(got.q) / 1000);
    for (int64_t t = 0; t < c.rows; ++t) EXPECT_NEAR(got.scale[t], expected.scale[t], 0x1p-18 * expected.scale[t]);
  }
}

TEST_P(SwigluQuantTest, NanStaysInItsRow) {
  for (const int64_t n : {40, 5000}) {  // 5000: pieces of one row, the NaN in the first or in the last
    for (const int64_t at : {int64_t{3}, n - 1}) {
      std::vector<float> x = gaussian(3 * 2 * n, 4);
      x[2 * n + at] = NAN;
      for (const int64_t first : {0, 1}) {  // all three rows, and the bad one alone
        const int64_t rows = first == 0 ? 3 : 1;
        const Arena::Mark mark(arena_);
        const QuantisedRows got(arena_, {.kind = RowForm::Kind::kInt8}, rows, n);
        silu_and_mul_quantise(ctx(), {x.data() + first * 2 * n, rows, 2 * n}, got);
        for (int64_t t = 0; t < rows; ++t) EXPECT_EQ(std::isnan(got.scale()[t]), t + first == 1);
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(got.q().row(1 - first)[i], 0);
      }
    }
  }
}

}  // namespace
}  // namespace choral::kernels
