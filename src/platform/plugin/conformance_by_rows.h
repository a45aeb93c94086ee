// A call of an operator taken apart: each row of the result in a call of its own, with what is that row's of every argument.
// Which that is follows from the argument's type; a matrix with another number of rows than the result is read as a whole.
#pragma once

#include <type_traits>
#include <utility>

#include "platform/host_view.h"
#include "platform/ops/arguments.h"

namespace choral::platform {

// Row `index` of `count`.
struct RowOf {
  const Context& ctx;
  int64_t index, count;

  template <class T>
  const T& operator()(const T& whole) const {
    return whole;
  }
  template <class T>
  MatrixView<T> operator()(const MatrixView<T>& m) const {
    return m.rows == count ? m.sub_rows(index, 1) : m;
  }
  // As many values for each row.
  template <class T>
  IndexArray<T> operator()(const IndexArray<T>& values) const {
    const int64_t each = values.size() / count;
    return values.sub(index * each, each);
  }
  SlotSequences operator()(const SlotSequences& sequences) const;
  RowSlots operator()(const RowSlots& slots) const {
    return std::visit([this](const auto& kind) { return RowSlots((*this)(kind)); }, slots);
  }
  SequenceBatch operator()(const SequenceBatch& sequences) const;
  SamplingBatch operator()(const SamplingBatch& batch) const;
  std::span<const ops::ShrinkSlice> operator()(std::span<const ops::ShrinkSlice> slices) const { return of_slices(slices); }
  std::span<const ops::ExpandSlice> operator()(std::span<const ops::ExpandSlice> slices) const { return of_slices(slices); }

 private:
  template <class Slice>
  std::span<const Slice> of_slices(std::span<const Slice> slices) const {
    const auto own = ctx.kernel.scratch.make<Slice>(slices.size());
    for (size_t i = 0; i < slices.size(); ++i) {
      own[i] = slices[i];
      own[i].middle = slices[i].middle.sub_rows(index, 1);
    }
    return own;
  }
};

namespace by_rows_detail {

// Rows of the result: the last matrix that is written, or where none is an argument by itself the last one with rows.
template <class T>
void note_rows(const T&, int64_t&, int64_t&) {}
inline void note_rows(const ops::In& m, int64_t& read, int64_t&) { read = m.rows > 0 ? m.rows : read; }
inline void note_rows(const ops::Out& m, int64_t&, int64_t& written) { written = m.rows; }

}  // namespace by_rows_detail

template <class... Params>
void run_by_rows(const Context& ctx, void (*run)(const Context&, Params...), std::type_identity_t<Params>... args) {
  int64_t read = 0, written = 0;
  (by_rows_detail::note_rows(args, read, written), ...);
  const int64_t rows = written > 0 ? written : read;
  for (int64_t i = 0; i < rows; ++i) {
    const RowOf row{ctx, i, rows};
    run(ctx, row(args)...);
  }
}
// Each row of each product.
void run_by_rows(const Context& ctx, void (*run)(const Context&, std::span<const kernels::GroupProduct>),
                 std::span<const kernels::GroupProduct> products);

}  // namespace choral::platform
