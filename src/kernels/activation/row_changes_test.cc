#include "kernels/activation/row_changes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace choral::kernels {
namespace {

TEST(RowChanges, QueriesGrowByTheirPosition) {
  const PositionScale scale{.beta = 0.1, .period = 16};
  EXPECT_EQ(scale.at(0), 1.0F);
  EXPECT_EQ(scale.at(15), 1.0F);
  EXPECT_FLOAT_EQ(scale.at(16), static_cast<float>(1 + 0.1 * std::log(2.0)));
  EXPECT_FLOAT_EQ(scale.at(50), static_cast<float>(1 + 0.1 * std::log(4.0)));

  ThreadPool pool(2);
  Arena arena;
  std::vector<float> values(9 * 6, 2.0F);
  const std::vector<int32_t> positions{3, 16, 200, 0, 15, 17, 31, 32, 5};
  const MatrixView<float> x(values.data(), 9, 6);
  scale_by_position({pool, CpuLevel::kBase, arena}, scale, positions, x.sub_cols(1, 4));
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(x.row(i)[1], 2 * scale.at(positions[i]));
    EXPECT_EQ(x.row(i)[4], 2 * scale.at(positions[i]));
    EXPECT_EQ(x.row(i)[0], 2.0F) << "columns beside them stay";
    EXPECT_EQ(x.row(i)[5], 2.0F);
  }
}

TEST(RowChanges, MeansAreSubtracted) {
  ThreadPool pool(2);
  Arena arena;
  std::vector<float> values(5 * 37);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i)) + 3;
  std::vector<float> centred = values;
  subtract_mean({pool, CpuLevel::kBase, arena}, {values.data(), 5, 37}, {centred.data(), 5, 37});
  for (int64_t row = 0; row < 5; ++row) {
    const double mean = std::accumulate(values.begin() + row * 37, values.begin() + (row + 1) * 37, 0.0) / 37;
    for (int64_t c = 0; c < 37; ++c) EXPECT_NEAR(centred[row * 37 + c], values[row * 37 + c] - mean, 1e-6);
  }
  subtract_mean({pool, CpuLevel::kBase, arena}, {values.data(), 5, 37}, {values.data(), 5, 37});
  EXPECT_EQ(values, centred) << "in place";
}

}  // namespace
}  // namespace choral::kernels
