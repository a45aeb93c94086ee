#include "kernels/quant/quantised_rows.h"

#include "base/check.h"

namespace choral::kernels {

QuantisedRows::QuantisedRows(Arena& arena, const RowForm& form, int64_t rows, int64_t k) : form_(form), rows_(rows), k_(k) {
  switch (form.kind) {
    case RowForm::Kind::kPlanes: planes_ = arena.make<QuantisedBlock>(rows * row_blocks()).data(); break;
    case RowForm::Kind::kInt8:
      q_ = arena.make<int8_t>(rows * k).data();
      scale_ = arena.make<float>(rows).data();
      break;
  }
}

QuantisedRows QuantisedRows::sub_rows(int64_t begin, int64_t count) const {
  CHORAL_DCHECK(begin >= 0 && count >= 0 && begin + count <= rows_, "rows of these");
  QuantisedRows part = *this;
  part.rows_ = count;
  if (planes_ != nullptr) part.planes_ += begin * row_blocks();
  if (q_ != nullptr) part.q_ += begin * k_;
  if (scale_ != nullptr) part.scale_ += begin;
  return part;
}

std::span<QuantisedBlock> QuantisedRows::planes() const {
  CHORAL_CHECK(form_.kind == RowForm::Kind::kPlanes, "rows of this form have no planes");
  return {planes_, static_cast<size_t>(rows_ * row_blocks())};
}

MatrixView<int8_t> QuantisedRows::q() const {
  CHORAL_CHECK(form_.kind == RowForm::Kind::kInt8, "rows of this form are no int8 rows");
  return {q_, rows_, k_};
}

std::span<float> QuantisedRows::scale() const { return {scale_, static_cast<size_t>(q().rows)}; }

void quantise_rows(const Context& ctx, MatrixView<const float> x, const QuantisedRows& out) {
  CHORAL_CHECK(x.rows == out.rows() && x.cols == out.k(), "x and its quantised rows fit");
  switch (out.form().kind) {
    case RowForm::Kind::kPlanes: return quantise_planes(ctx.pool, ctx.level, x, out.form().planes, out.planes().data());
    case RowForm::Kind::kInt8: return quant_rows(ctx, x, out.form().int8, out.q(), out.scale());
  }
}

void quantise_rows(CpuLevel level, MatrixView<const float> x, const QuantisedRows& out) {
  CHORAL_DCHECK(x.rows == out.rows() && x.cols == out.k(), "x and its quantised rows fit");
  switch (out.form().kind) {
    case RowForm::Kind::kPlanes: return quantise_planes(level, x, out.form().planes, out.planes().data());
    case RowForm::Kind::kInt8: return quant_rows(level, x, out.form().int8, out.q(), out.scale());
  }
}

}  // namespace choral::kernels
