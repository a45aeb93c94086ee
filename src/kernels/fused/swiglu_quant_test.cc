#include "kernels/fused/swiglu_quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/quant/row_quant.h"

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
