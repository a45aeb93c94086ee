#include "kernels/fused/norm_quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/fused/row_quant.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/ref/norm_quant.h"

namespace choral::kernels {
namespace {

constexpr float kEps = 1e-5f;

class NormQuantTest : public testing::TestWithParam<CpuLevel> {
 protected:
  Context ctx() { return {pool_, GetParam(), arena_}; }

  ThreadPool pool_{2};
  Arena arena_;
};
INSTANTIATE_TEST_SUITE_P(Levels, NormQuantTest, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& tested) { return std::string(cpu_level_name(tested.param)); });

// Rows of x and of a residual, and what the separate kernels make of them.
struct Case {
  int64_t rows, cols;
  NormWeight form;
  std::vector<float> x, residual, w, sum, y;

  Case(int64_t r, int64_t c, NormWeight f)
      : rows(r),
        cols(c),
        form(f),
        x(gaussian(r * c, 1)),
        residual(gaussian(r * c, 2)),
        w(gaussian(c, 3)),
        sum(residual),
        y(x.size()) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
  }
  MatrixView<float> view(std::vector<float>& v) const { return {v.data(), rows, cols}; }
  int64_t planes() const { return 2 * rows * (cols / 32); }
};

void expect_equal_blocks(const std::vector<QuantisedBlock>& got, const std::vector<QuantisedBlock>& expected) {
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(QuantisedBlock)), 0);
}

TEST_P(NormQuantTest, DynamicIsTheCompositionToTheBit) {
  for (const int64_t cols : {1, 5, 15, 16, 17, 33, 63, 64, 65, 100, 2048}) {
    for (const NormWeight form : {NormWeight::kPlain, NormWeight::kOnePlus}) {
      Case c(19, cols, form);
      std::vector<int8_t> expected_q(c.x.size()), q(c.x.size());
      std::vector<float> expected_scale(c.rows), scale(c.rows);
      rms_norm(ctx(), c.view(c.sum), c.w, kEps, c.view(c.y), form);
      dynamic_quant_rows(ctx(), c.view(c.y), {expected_q.data(), c.rows, cols}, expected_scale);

      auto residual = c.residual;
      add_rms_norm_dynamic_quant(ctx(), c.view(c.x), c.view(residual), c.w, kEps, {q.data(), c.rows, cols}, scale, {}, form);
      EXPECT_EQ(residual, c.sum);
      EXPECT_EQ(q, expected_q) << cols;
      EXPECT_EQ(scale, expected_scale);

      auto in_place = c.x;  // the float row wanted, over x
      residual = c.residual;
      q.assign(q.size(), 0);
      add_rms_norm_dynamic_quant(ctx(), c.view(in_place), c.view(residual), c.w, kEps, {q.data(), c.rows, cols}, scale,
                                 c.view(in_place), form);
      EXPECT_EQ(in_place, c.y);
      EXPECT_EQ(q, expected_q);
      EXPECT_EQ(scale, expected_scale);
    }
  }
}

TEST_P(NormQuantTest, PlanesAreTheCompositionToTheBit) {
  for (const int64_t cols : {32, 64, 96, 480, 512, 544, 2048}) {
    for (const QuantiseOptions options : {QuantiseOptions{0, false}, {8, false}, {32, true}}) {
      Case c(19, cols, NormWeight::kPlain);
      std::vector<QuantisedBlock> expected(c.planes()), got(c.planes());
      rms_norm(ctx(), c.view(c.sum), c.w, kEps, c.view(c.y));
      quantise_rows(pool_, GetParam(), c.view(c.y), options, expected.data());
      for (const bool want_floats : {false, true}) {
        auto residual = c.residual, in_place = c.x;
        got.assign(got.size(), {});
        add_rms_norm_quantise(ctx(), c.view(in_place), c.view(residual), c.w, kEps, options, got.data(),
                              want_floats ? c.view(in_place) : MatrixView<float>{});
        EXPECT_EQ(residual, c.sum);
        EXPECT_EQ(in_place, want_floats ? c.y : c.x);
        expect_equal_blocks(got, expected);

        auto sum = c.sum;
        got.assign(got.size(), {});
        rms_norm_quantise(ctx(), c.view(sum), c.w, kEps, options, got.data(), want_floats ? c.view(sum) : MatrixView<float>{});
        EXPECT_EQ(sum, want_floats ? c.y : c.sum);
        expect_equal_blocks(got, expected);
      }
    }
  }
}

// The oracle's floats differ in the last bits, so an integer may go to the other side of a tie: by one, and rarely.
TEST_P(NormQuantTest, AgreesWithTheOracleButForTies) {
  Case c(64, 2048, NormWeight::kOnePlus);
  std::vector<int8_t> q(c.x.size()), expected_q(c.x.size());
  std::vector<float> scale(c.rows), expected_scale(c.rows), expected_y(c.x.size());
  auto residual = c.residual, expected_residual = c.residual;
  add_rms_norm_dynamic_quant(ctx(), c.view(c.x), c.view(residual), c.w, kEps, {q.data(), c.rows, c.cols}, scale, c.view(c.y),
                             c.form);
  ref::add_rms_norm_dynamic_quant(c.view(c.x), c.view(expected_residual), c.w, kEps, {expected_q.data(), c.rows, c.cols},
                                  expected_scale, c.view(expected_y), c.form);
  EXPECT_EQ(residual, expected_residual);
  int64_t ties = 0;
  for (size_t i = 0; i < q.size(); ++i) {
    ASSERT_LE(std::abs(q[i] - expected_q[i]), 1);
    ties += q[i] != expected_q[i];
  }
  // A value is within 2^-20 · 127 of a tie for one in about 4000.
  EXPECT_LE(ties, std::ssize(q) / 4000);
  for (int64_t t = 0; t < c.rows; ++t) EXPECT_NEAR(scale[t], expected_scale[t], 0x1p-20 * expected_scale[t]);

  const int64_t blocks = c.cols / 32;
  std::vector<QuantisedBlock> planes(c.planes()), expected(c.planes());
  rms_norm_quantise(ctx(), c.view(c.sum), c.w, kEps, {8, false}, planes.data(), {}, c.form);
  ref::rms_norm_quantise(c.view(c.sum), c.w, kEps, {8, false}, expected.data(), c.view(expected_y), c.form);
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t i = 0; i < c.cols; ++i) {  // both planes together stand for the float
      const auto value = [&](const std::vector<QuantisedBlock>& p, int64_t plane) {
        const QuantisedBlock& block = p[(2 * t + plane) * blocks + i / 32];
        return static_cast<double>(block.scale) * block.q[i % 32];
      };
      const double largest = 127.0 * expected[2 * t * blocks + i / 32].scale;
      ASSERT_NEAR(value(planes, 0) + value(planes, 1), expected_y[t * c.cols + i], largest * 0x1.2p-16);
    }
  }
}

TEST_P(NormQuantTest, ARowIsByItself) {
  Case c(70, 96, NormWeight::kPlain);
  c.x[33 * 96 + 7] = NAN;
  std::fill_n(c.x.begin() + 40 * 96, 96, 0.0f);
  std::fill_n(c.residual.begin() + 40 * 96, 96, 0.0f);
  std::vector<int8_t> q(c.x.size()), alone_q(96);
  std::vector<float> scale(c.rows), alone_scale(1);
  std::vector<QuantisedBlock> planes(c.planes()), alone(6);
  auto residual = c.residual;
  add_rms_norm_dynamic_quant(ctx(), c.view(c.x), c.view(residual), c.w, kEps, {q.data(), c.rows, 96}, scale);
  residual = c.residual;
  add_rms_norm_quantise(ctx(), c.view(c.x), c.view(residual), c.w, kEps, {}, planes.data());
  ThreadPool one(1);
  const Context single{one, GetParam(), arena_};
  for (int64_t t = 0; t < c.rows; ++t) {
    const MatrixView<const float> x(c.x.data() + t * 96, 1, 96);
    std::vector<float> r(c.residual.begin() + t * 96, c.residual.begin() + (t + 1) * 96);
    add_rms_norm_dynamic_quant(single, x, {r.data(), 1, 96}, c.w, kEps, {alone_q.data(), 1, 96}, alone_scale);
    EXPECT_EQ(std::memcmp(q.data() + t * 96, alone_q.data(), 96), 0);
    EXPECT_EQ(std::memcmp(&scale[t], alone_scale.data(), sizeof(float)), 0);
    EXPECT_EQ(std::isnan(scale[t]), t == 33);
    EXPECT_EQ(scale[t] == 0.0f, t == 40);
    std::copy_n(c.residual.begin() + t * 96, 96, r.begin());
    add_rms_norm_quantise(single, x, {r.data(), 1, 96}, c.w, kEps, {}, alone.data());
    EXPECT_EQ(std::memcmp(planes.data() + t * 6, alone.data(), sizeof(QuantisedBlock) * 6), 0);
  }
  const int64_t grown = arena_.grown();
  residual = c.residual;
  add_rms_norm_dynamic_quant(ctx(), c.view(c.x), c.view(residual), c.w, kEps, {q.data(), c.rows, 96}, scale);
  EXPECT_EQ(arena_.grown(), grown) << "scratch is given back";
}

}  // namespace
}  // namespace choral::kernels
