#include "kernels/activation/row_changes.h"

#include <array>
#include <cmath>
#include <numeric>

namespace choral::kernels {
namespace {

constexpr int64_t kRowsAtOnce = 4;

// In a fixed number of strands, whatever the CPU's lanes are.
float mean_of_row(std::span<const float> row) {
  constexpr size_t kStrands = 16;
  std::array<float, kStrands> sums = {};
  for (size_t i = 0; i < row.size(); ++i) sums[i % kStrands] += row[i];
  return std::accumulate(sums.begin(), sums.end(), 0.0F) / static_cast<float>(row.size());
}

}  // namespace

float PositionScale::at(int64_t position) const {
  return static_cast<float>(1 + beta * std::log1p(static_cast<double>(position / period)));
}

void scale_by_position(const Context& ctx, const PositionScale& scale, std::span<const int32_t> positions, MatrixView<float> x) {
  ctx.pool.parallel_for(x.rows, kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float factor = scale.at(positions[i]);
      for (float& value : x.row_span(i)) value *= factor;
    }
  });
}

void subtract_mean(const Context& ctx, MatrixView<const float> x, MatrixView<float> y) {
  ctx.pool.parallel_for(x.rows, kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float mean = mean_of_row(x.row_span(i));
      for (int64_t c = 0; c < x.cols; ++c) y.row(i)[c] = x.row(i)[c] - mean;
    }
  });
}

}  // namespace choral::kernels
