// Operators that look at rows: against plain loops, and each row alone against the same row among others.
#include <algorithm>
#include <cmath>

#include "kernel_testing.h"

namespace choral_cuda {
namespace {

constexpr double kNear = 2e-6;
constexpr int64_t kRows = 5;

double norm_scale(const std::vector<float>& x, int64_t begin, int64_t size, float eps) {
  double sum = 0;
  for (int64_t i = begin; i < begin + size; ++i) sum += double{x[i]} * x[i];
  return 1 / std::sqrt(sum / size + eps);
}

TEST(Rows, NormIsThatOfEachRow) {
  for (const int64_t cols : {64, 576, 1000}) {
    TestMatrix x(kRows, cols), y(kRows, cols);
    x.fill(1, 3);
    const auto weight = random_floats(cols, 2);
    TestLaunch launch;
    ASSERT_EQ(done(rms_norm(launch.get(), {.x = x.view(), .y = y.view(), .weight = vector_of(weight), .eps = 1e-5f})),
              cudaSuccess);
    for (int64_t r = 0; r < kRows; ++r) {
      const double scale = norm_scale(x.row(r), 0, cols, 1e-5f);
      for (int64_t c = 0; c < cols; ++c) expect_near(y.at(r, c), x.at(r, c) * scale * weight[c], kNear, r, c);
      TestMatrix alone(1, cols);
      ASSERT_EQ(
          done(rms_norm(launch.get(), {.x = x.rows_from(r, 1), .y = alone.view(), .weight = vector_of(weight), .eps = 1e-5f})),
          cudaSuccess);
      EXPECT_TRUE(same_bits(alone.row(0), y.row(r)));
    }
    EXPECT_TRUE(y.gaps_are_whole());
  }
}

TEST(Rows, AddNormAddsFirstAndHasTheBitsOfItsParts) {
  constexpr int64_t kCols = 300;
  const auto bias = random_floats(kCols, 4);
  TestMatrix x(kRows, kCols), residual(kRows, kCols), y(kRows, kCols), sum(kRows, kCols), normed(kRows, kCols);
  x.fill(1);
  residual.fill(2);
  sum.fill(2);
  const auto weight = random_floats(kCols, 3);
  TestLaunch launch;
  ASSERT_EQ(
      done(add_rms_norm(launch.get(),
                        {.x = x.view(), .y = y.view(), .residual = residual.view(), .weight = vector_of(weight), .eps = 1e-6f})),
      cudaSuccess);
  ASSERT_EQ(done(add(launch.get(), {.x = x.view(), .y = sum.view()})), cudaSuccess);
  ASSERT_EQ(done(rms_norm(launch.get(), {.x = sum.view(), .y = normed.view(), .weight = vector_of(weight), .eps = 1e-6f})),
            cudaSuccess);
  for (int64_t r = 0; r < kRows; ++r) {
    EXPECT_TRUE(same_bits(residual.row(r), sum.row(r)));
    EXPECT_TRUE(same_bits(y.row(r), normed.row(r)));
  }

  residual.fill(2);
  ASSERT_EQ(done(add_rms_norm_bias(launch.get(), {.x = x.view(),
                                                  .y = y.view(),
                                                  .residual = residual.view(),
                                                  .weight = vector_of(weight),
                                                  .eps = 1e-6f,
                                                  .bias = vector_of(bias)})),
            cudaSuccess);
  const TestMatrix unbiased = normed;
  ASSERT_EQ(done(add_bias(launch.get(), {.y = normed.view(), .bias = vector_of(bias)})), cudaSuccess);
  for (int64_t r = 0; r < kRows; ++r) {
    EXPECT_TRUE(same_bits(residual.row(r), sum.row(r)));
    EXPECT_TRUE(same_bits(y.row(r), normed.row(r)));
    for (int64_t c = 0; c < kCols; ++c) EXPECT_EQ(y.at(r, c), unbiased.at(r, c) + bias[c]);
  }
}

TEST(Rows, HeadsAreNormedInPlace) {
  constexpr int64_t kHead = 48, kCols = 3 * kHead;
  TestMatrix x(kRows, kCols);
  x.fill(1, 2);
  const TestMatrix before = x;
  const auto weight = random_floats(kHead, 2);
  TestLaunch launch;
  ASSERT_EQ(done(rms_norm_heads(launch.get(), {.x = x.view(), .y = x.view(), .weight = vector_of(weight), .eps = 1e-6f})),
            cudaSuccess);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) {
      const double scale = norm_scale(before.row(r), c / kHead * kHead, kHead, 1e-6f);
      expect_near(x.at(r, c), before.at(r, c) * scale * weight[c % kHead], kNear, r, c);
    }
  }
}

TEST(Rows, GatesAreMultiplied) {
  constexpr int64_t kCols = 1100;  // more than a block's columns
  TestMatrix x(kRows, 2 * kCols), silu(kRows, kCols), gelu(kRows, kCols);
  x.fill(1, 6);
  TestLaunch launch;
  ASSERT_EQ(done(silu_and_mul(launch.get(), {.x = x.view(), .y = silu.view()})), cudaSuccess);
  ASSERT_EQ(done(gelu_tanh_and_mul(launch.get(), {.x = x.view(), .y = gelu.view()})), cudaSuccess);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) {
      const double gate = x.at(r, c), up = x.at(r, kCols + c);
      expect_near(silu.at(r, c), gate / (1 + std::exp(-gate)) * up, 1e-5, r, c);
      const double inner = std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
      expect_near(gelu.at(r, c), gate / 2 * (1 + std::tanh(inner)) * up, 1e-5, r, c);
    }
  }
  EXPECT_TRUE(silu.gaps_are_whole() && gelu.gaps_are_whole());
}

TEST(Rows, ClampedGatesAreMultipliedInPairs) {
  constexpr int64_t kCols = 1100;
  constexpr float kAlpha = 1.7f, kLimit = 2.0f;
  TestMatrix x(kRows, 2 * kCols), y(kRows, kCols);
  x.fill(1, 6);  // far beyond the limit on both sides
  x.at(1, 2 * 7) = NAN, x.at(2, 2 * 7 + 1) = NAN;
  TestLaunch launch;
  ASSERT_EQ(done(swigluoai_and_mul(launch.get(), {.x = x.view(), .y = y.view(), .alpha = kAlpha, .limit = kLimit})), cudaSuccess);
  EXPECT_TRUE(std::isnan(y.at(1, 7)) && std::isnan(y.at(2, 7)));
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) {
      const double gate = std::min(x.at(r, 2 * c), kLimit), up = std::clamp(x.at(r, 2 * c + 1), -kLimit, kLimit);
      if (c != 7 || r == 0 || r > 2) expect_near(y.at(r, c), (up + 1) * gate / (1 + std::exp(-kAlpha * gate)), 1e-5, r, c);
    }
  }
  EXPECT_TRUE(y.gaps_are_whole());
}

TEST(Rows, CapsAreSoft) {
  constexpr int64_t kCols = 1100;
  constexpr float kCap = 3.0f;
  TestMatrix x(kRows, kCols);
  x.fill(1, 20);
  x.at(1, 7) = NAN;
  const TestMatrix before = x;
  TestLaunch launch;
  ASSERT_EQ(done(soft_cap(launch.get(), {.y = x.view(), .cap = kCap})), cudaSuccess);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) {
      if (r != 1 || c != 7) expect_near(x.at(r, c), kCap * std::tanh(double{before.at(r, c)} / kCap), 1e-6, r, c);
    }
  }
  EXPECT_TRUE(std::isnan(x.at(1, 7)));
  EXPECT_TRUE(x.gaps_are_whole());
}

TEST(Rows, FactorsAreMultipliedIn) {
  constexpr int64_t kCols = 1100;
  TestMatrix y(kRows, kCols);
  y.fill(1);
  const TestMatrix before = y;
  TestLaunch launch;
  ASSERT_EQ(done(scale(launch.get(), {.y = y.view(), .factor = 45.25f})), cudaSuccess);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) EXPECT_EQ(y.at(r, c), before.at(r, c) * 45.25f);
  }
  EXPECT_TRUE(y.gaps_are_whole());
}

// The same bits as sums over slots in order, from 0 or from what was there, whatever other rows there are.
TEST(Rows, RowsOfExpertsAreAddedInTheOrderOfSlots) {
  constexpr int64_t kCols = 1100, kSlots = 3, kTokens = 4;
  TestMatrix x(kRows, kCols), weights(kTokens, kSlots);
  x.fill(1);
  weights.fill(2);
  const Shared<int32_t> places{4, 0, 2, 1, 1, 3, 0, 4, 2, 3, 2, 0};
  for (const bool add : {false, true}) {
    TestMatrix y(kTokens, kCols);
    y.fill(3);
    const TestMatrix before = y;
    TestLaunch launch;
    ASSERT_EQ(done(moe_combine(launch.get(),
                               {.x = x.view(), .places = places.data(), .weights = weights.view(), .y = y.view(), .add = add})),
              cudaSuccess);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t c = 0; c < kCols; ++c) {
        float sum = add ? before.at(t, c) : 0.0f;
        for (int64_t s = 0; s < kSlots; ++s) sum = std::fma(weights.at(t, s), x.at(places[t * kSlots + s], c), sum);
        ASSERT_EQ(y.at(t, c), sum) << t << ", " << c;
      }
    }
    EXPECT_TRUE(y.gaps_are_whole());
    EXPECT_EQ(launch.fault(), kNoFault);
  }
}

TEST(Rows, PlacesThatAreNoRowsLeaveTheirTokenAlone) {
  TestMatrix x(kRows, 70), weights(3, 2), y(3, 70), good(3, 70);
  x.fill(1);
  weights.fill(2);
  y.fill(3);
  good.fill(3);
  const TestMatrix before = y;
  const Shared<int32_t> places{0, 1, 2, 5, -1, 3}, within{0, 1, 2, 2, 3, 3};
  const auto combine = [&](TestLaunch& launch, const Shared<int32_t>& at, TestMatrix& to) {
    return done(moe_combine(launch.get(), {.x = x.view(), .places = at.data(), .weights = weights.view(), .y = to.view()}));
  };
  TestLaunch launch;
  ASSERT_EQ(combine(launch, within, good), cudaSuccess);
  EXPECT_EQ(launch.fault(), kNoFault);
  ASSERT_EQ(combine(launch, places, y), cudaSuccess);
  EXPECT_EQ(launch.fault(), kRowBeyond);
  EXPECT_TRUE(same_bits(y.row(0), good.row(0)));
  EXPECT_TRUE(same_bits(y.row(1), before.row(1)) && same_bits(y.row(2), before.row(2)));
}

TEST(Rows, TakenRowsAreThoseNamed) {
  TestMatrix x(kRows, 70), out(3, 70);
  x.fill(1);
  const Shared<int32_t> good{4, 0, 4}, bad{1, 5, -1};
  TestLaunch launch;
  ASSERT_EQ(done(take_rows(launch.get(), {.x = x.view(), .rows = good.data(), .out = out.view()})), cudaSuccess);
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(out.row(i), x.row(good[i])));
  EXPECT_EQ(launch.fault(), kNoFault);
  ASSERT_EQ(done(take_rows(launch.get(), {.x = x.view(), .rows = bad.data(), .out = out.view()})), cudaSuccess);
  EXPECT_EQ(launch.fault(), kRowBeyond);
  EXPECT_TRUE(same_bits(out.row(1), x.row(0)));
}

struct RotaryCase {
  int64_t head_dim, rotary_dim;
  int32_t interleaved;
};

class Rotary : public ::testing::TestWithParam<RotaryCase> {
 protected:
  static constexpr int64_t kPositions = 40, kQHeads = 3, kKHeads = 2;

  Rotary() {
    for (int64_t p = 0; p < kPositions; ++p) {
      for (const bool sine : {false, true}) {
        for (int64_t i = 0; i < param_.rotary_dim / 2; ++i) {
          const double angle = p * std::pow(10000.0, -2.0 * i / param_.rotary_dim);
          table_values_.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
        }
      }
    }
    q_.fill(1);
    k_.fill(2);
  }

  choral_rotary_args args() {
    return {.table = {table_values_.data(), param_.head_dim, param_.rotary_dim, kPositions, param_.interleaved, 0},
            .positions = positions_.data(),
            .q = q_.view(),
            .k = k_.view()};
  }

  // What becomes of element c of a row.
  double rotated(const std::vector<double>& row, int64_t position, int64_t c) const {
    const int64_t half = param_.rotary_dim / 2, begin = c / param_.head_dim * param_.head_dim, at = c - begin;
    if (at >= param_.rotary_dim) return row[c];
    const int64_t i = param_.interleaved ? at / 2 : at % half;
    const bool first = param_.interleaved ? at % 2 == 0 : at < half;
    const int64_t other = param_.interleaved ? begin + (at ^ 1) : begin + (at + half) % param_.rotary_dim;
    const double cosine = table_values_[position * param_.rotary_dim + i],
                 sine = table_values_[position * param_.rotary_dim + half + i];
    return first ? row[c] * cosine - row[other] * sine : row[c] * cosine + row[other] * sine;
  }

  void expect_rotated(const TestMatrix& before, const TestMatrix& after, const Shared<float>& weight = {}) const {
    for (int64_t r = 0; r < kRows; ++r) {
      const auto given = before.row(r);
      std::vector<double> row(given.begin(), given.end());
      for (int64_t c = 0; c < before.cols() && !weight.empty(); ++c) {
        const int64_t begin = c / param_.head_dim * param_.head_dim;
        row[c] *= norm_scale(given, begin, param_.head_dim, 1e-6f) * weight[c - begin];
      }
      for (int64_t c = 0; c < before.cols(); ++c) expect_near(after.at(r, c), rotated(row, positions_[r], c), kNear, r, c);
    }
    EXPECT_TRUE(after.gaps_are_whole());
  }

  const RotaryCase param_ = GetParam();
  Shared<float> table_values_;
  Shared<int32_t> positions_{0, 1, 39, 7, 20};
  TestMatrix q_{kRows, kQHeads*param_.head_dim}, k_{kRows, kKHeads*param_.head_dim};
  TestLaunch launch_;
};

TEST_P(Rotary, TurnsPairs) {
  const TestMatrix q = q_, k = k_;
  ASSERT_EQ(done(rotary_embedding(launch_.get(), args())), cudaSuccess);
  expect_rotated(q, q_);
  expect_rotated(k, k_);
  EXPECT_EQ(launch_.fault(), kNoFault);
}

TEST_P(Rotary, NormsHeadsFirst) {
  const TestMatrix q = q_, k = k_;
  const auto q_weight = random_floats(param_.head_dim, 3), k_weight = random_floats(param_.head_dim, 4);
  auto a = args();
  a.q_weight = vector_of(q_weight);
  a.k_weight = vector_of(k_weight);
  a.eps = 1e-6f;
  ASSERT_EQ(done(qk_norm_rope(launch_.get(), a)), cudaSuccess);
  expect_rotated(q, q_, q_weight);
  expect_rotated(k, k_, k_weight);
}

TEST_P(Rotary, LeavesRowsOfUnknownPositionsAlone) {
  const TestMatrix q = q_;
  positions_ = {40, -1, 0, 0, 0};
  ASSERT_EQ(done(rotary_embedding(launch_.get(), args())), cudaSuccess);
  EXPECT_EQ(launch_.fault(), kPositionBeyond);
  EXPECT_TRUE(same_bits(q.row(0), q_.row(0)) && same_bits(q.row(1), q_.row(1)));
}

INSTANTIATE_TEST_SUITE_P(Tables, Rotary,
                         ::testing::Values(RotaryCase{16, 16, 0}, RotaryCase{16, 8, 0}, RotaryCase{16, 16, 1},
                                           RotaryCase{48, 12, 1}, RotaryCase{96, 64, 0}));

}  // namespace
}  // namespace choral_cuda
