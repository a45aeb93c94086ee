// Rows of x as a matrix multiplies them. The matrix says in which form it wants them (PackedMatrix::quantised_input); who makes x
// quantises it into QuantisedRows on the way (quantise_rows, fused/norm_quant.h, fused/swiglu_quant.h); who stands between them
// hands them on and knows neither planes nor scales. A view of memory that an arena holds.
#pragma once

#include "base/arena.h"
#include "kernels/context.h"
#include "kernels/quant/quantise_planes.h"
#include "kernels/quant/row_quant.h"

namespace choral::kernels {

struct RowForm {
  enum class Kind : uint8_t {
    kPlanes,  // blocks of int8, of one plane or of two: quantise_planes.h
    kInt8,    // int8 with one scale for each row: row_quant.h
  };
  Kind kind = Kind::kPlanes;
  QuantiseOptions planes = {};  // of kPlanes
  RowQuant int8 = {};           // of kInt8
  bool operator==(const RowForm&) const = default;
};

class QuantisedRows {
 public:
  QuantisedRows() = default;  // no rows
  // Their memory, which lives as long as what `arena` makes now; contents undefined.
  QuantisedRows(Arena& arena, const RowForm& form, int64_t rows, int64_t k);

  const RowForm& form() const { return form_; }
  int64_t rows() const { return rows_; }
  int64_t k() const { return k_; }
  bool empty() const { return rows_ == 0; }
  QuantisedRows sub_rows(int64_t begin, int64_t count) const;

  // kPlanes: plane p of row r is at [(planes r + p) * plane_blocks(k)].
  std::span<QuantisedBlock> planes() const;
  // kInt8.
  MatrixView<int8_t> q() const;
  std::span<float> scale() const;

 private:
  int64_t row_blocks() const { return plane_count(form_.planes.planes) * plane_blocks(k_); }

  RowForm form_;
  int64_t rows_ = 0, k_ = 0;
  QuantisedBlock* planes_ = nullptr;
  int8_t* q_ = nullptr;
  float* scale_ = nullptr;
};

// Rows of x, divided over the pool, in the form of `out`, which has as many of the same length.
void quantise_rows(const Context& ctx, MatrixView<const float> x, const QuantisedRows& out);
// The same by the calling thread alone.
void quantise_rows(CpuLevel level, MatrixView<const float> x, const QuantisedRows& out);

}  // namespace choral::kernels
