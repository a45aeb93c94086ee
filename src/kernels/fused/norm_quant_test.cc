#include "kernels/fused/norm_quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/quant/row_quant.h"
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

// Rows of x.
struct Case {
  int64_t rows, cols;
  std::vector<float> x, w, bias, y;

  Case(int64_t r, int64_t c, bool biased)
      : rows(r), cols(c), x(gaussian(r * c, 1)), w(gaussian(c, 3)), bias(gaussian(biased ? c : 0, 4)), y(x.size()) {}
  MatrixView<float> view(std::vector<float>& v) const { return {v.data(), rows, cols}; }
  int64_t planes() const { return 2 * rows * plane_blocks(cols); }
};

// What is in quantised rows, byte for byte.
std::vector<std::byte> bytes_of(const QuantisedRows& rows) {
  std::vector<std::byte> all;
  const auto add = [&](auto values) {
    const auto bytes = std::as_bytes(values);
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  if (rows.form().kind == RowForm::Kind::kPlanes) {
    add(rows.planes());
  } else {
    add(std::span(rows.q().data, rows.rows() * rows.k()));
    add(rows.scale());
  }
  return all;
}

constexpr RowForm kDynamic{.kind = RowForm::Kind::kInt8};
constexpr RowForm kStatic{.kind = RowForm::Kind::kInt8, .int8 = {StaticQuant{.scale = 0.02f, .offset = 3}}};
RowForm planes(QuantiseOptions options = {}) { return {.kind = RowForm::Kind::kPlanes, .planes = options}; }

TEST_P(NormQuantTest, IsTheCompositionToTheBit) {
  for (const int64_t cols : {1, 5, 15, 16, 17, 32, 33, 63, 64, 65, 96, 100, 480, 512, 544, 2048}) {
    for (const RowForm& form : {kDynamic, kStatic, planes(), planes({8, false}), planes({32, true}),
                                planes({8, false, Planes::kOne}), planes({32, true, Planes::kOneScale})}) {
      for (const bool biased : {false, true}) {
        const Arena::Mark mark(arena_);
        Case c(19, cols, biased);
        const QuantisedRows expected(arena_, form, c.rows, cols), got(arena_, form, c.rows, cols);
        rms_norm(ctx(), c.view(c.x), c.w, kEps, c.view(c.y), c.bias);
        quantise_rows(ctx(), c.view(c.y), expected);
        for (const bool want_floats : {false, true}) {  // over x
          auto in_place = c.x;
          rms_norm_quantise(ctx(), c.view(in_place), c.w, kEps, got, want_floats ? c.view(in_place) : MatrixView<float>{},
                            c.bias);
          EXPECT_EQ(in_place, want_floats ? c.y : c.x);
          EXPECT_EQ(bytes_of(got), bytes_of(expected)) << cols;
        }
      }
    }
  }
}

// The oracle's floats differ in the last bits, so an integer may go to the other side of a tie: by one, and rarely.
TEST_P(NormQuantTest, AgreesWithTheOracleButForTies) {
  Case c(64, 2048, true);
  std::vector<int8_t> expected_q(c.x.size());
  std::vector<float> expected_scale(c.rows), expected_y(c.x.size());
  const QuantisedRows dynamic(arena_, kDynamic, c.rows, c.cols);
  rms_norm_quantise(ctx(), c.view(c.x), c.w, kEps, dynamic, c.view(c.y), c.bias);
  ref::rms_norm_dynamic_quant(c.view(c.x), c.w, kEps, {expected_q.data(), c.rows, c.cols}, expected_scale, c.view(expected_y),
                              c.bias);
  const std::span<const int8_t> q(dynamic.q().data, expected_q.size());
  const auto scale = dynamic.scale();
  int64_t ties = 0;
  for (size_t i = 0; i < q.size(); ++i) {
    ASSERT_LE(std::abs(q[i] - expected_q[i]), 1);
    ties += q[i] != expected_q[i];
  }
  // A value is within 2^-20 · 127 of a tie for one in about 4000.
  EXPECT_LE(ties, std::ssize(q) / 4000);
  for (int64_t t = 0; t < c.rows; ++t) EXPECT_NEAR(scale[t], expected_scale[t], 0x1p-20 * expected_scale[t]);

  const int64_t blocks = c.cols / 32;
  std::vector<QuantisedBlock> expected(c.planes());
  const QuantisedRows got(arena_, planes({8, false}), c.rows, c.cols);
  rms_norm_quantise(ctx(), c.view(c.x), c.w, kEps, got, {}, c.bias);
  ref::rms_norm_quantise(c.view(c.x), c.w, kEps, {8, false}, expected.data(), c.view(expected_y), c.bias);
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t i = 0; i < c.cols; ++i) {  // both planes together stand for the float
      const auto value = [&](int64_t plane) {
        const QuantisedBlock& block = got.planes()[(2 * t + plane) * blocks + i / 32];
        return static_cast<double>(block.scale) * block.q[i % 32];
      };
      const double largest = 127.0 * expected[2 * t * blocks + i / 32].scale;
      ASSERT_NEAR(value(0) + value(1), expected_y[t * c.cols + i], largest * 0x1.2p-16);
    }
  }
}

TEST_P(NormQuantTest, ARowIsByItself) {
  Case c(70, 96, false);
  c.x[33 * 96 + 7] = NAN;
  std::fill_n(c.x.begin() + 40 * 96, 96, 0.0f);
  for (const RowForm& form : {kDynamic, planes(), planes({8, false, Planes::kOneScale})}) {
    const QuantisedRows all(arena_, form, c.rows, 96), alone(arena_, form, 1, 96);
    rms_norm_quantise(ctx(), c.view(c.x), c.w, kEps, all);
    ThreadPool one(1);
    const Context single{one, GetParam(), arena_};
    for (int64_t t = 0; t < c.rows; ++t) {
      rms_norm_quantise(single, {c.x.data() + t * 96, 1, 96}, c.w, kEps, alone);
      EXPECT_EQ(bytes_of(all.sub_rows(t, 1)), bytes_of(alone)) << t;
      if (form != kDynamic) continue;
      EXPECT_EQ(std::isnan(all.scale()[t]), t == 33);
      EXPECT_EQ(all.scale()[t] == 0.0f, t == 40);
    }
    const int64_t grown = arena_.grown();
    rms_norm_quantise(ctx(), c.view(c.x), c.w, kEps, all);
    EXPECT_EQ(arena_.grown(), grown) << "scratch is given back";
  }
}

}  // namespace
}  // namespace choral::kernels
