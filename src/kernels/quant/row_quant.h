// Float rows to int8, what W8A8 checkpoints multiply with. Dynamic: one scale per row,
//   s = max|x| / 127,  q = rint(x / s) (float32 division, ties to even), clamped to [-127, 127]; so q is never -128.
//   A row whose s is 0 (all zero, or so small that max|x| / 127 underflows): q = 0, s = 0.
//   A row that holds a NaN or an infinity: q = 0, s = NaN; no other row is touched.
// Static: one scale and offset for all rows, known from calibration,
//   q = rint(x / scale) + offset (float32 division, ties to even), clamped to [-128, 127]; s = 1, since the product's own scales
//   hold x's. A row that holds a NaN or an infinity: q = 0, s = NaN.
// All levels give the same bits. Pure functions; rows are divided over ctx.pool. Oracle: ref/row_quant.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

// q [rows, cols] and scale [rows] of x [rows, cols].
void dynamic_quant_rows(const Context& ctx, MatrixView<const float> x, MatrixView<int8_t> q, std::span<float> scale);

struct StaticQuant {
  float scale;     // finite, above 0
  int32_t offset;  // -128 to 127
  bool operator==(const StaticQuant&) const = default;
};

// Which of the two.
struct RowQuant {
  std::optional<StaticQuant> fixed = {};  // none: dynamic
  bool operator==(const RowQuant&) const = default;
};
void quant_rows(const Context& ctx, MatrixView<const float> x, RowQuant quant, MatrixView<int8_t> q, std::span<float> scale);
// The same by the calling thread alone.
void quant_rows(CpuLevel level, MatrixView<const float> x, RowQuant quant, MatrixView<int8_t> q, std::span<float> scale);

}  // namespace choral::kernels
