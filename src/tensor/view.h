// Views: who owns the bytes is somebody else's business; a view never outlives its owner. Passed by value.
// MatrixView<T> is what kernels take; TensorView is the type-erased form that files, loaders and devices exchange.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace choral {

// Rows of `cols` elements, `stride` elements apart. [rows, cols]
template <class T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  MatrixView() = default;
  MatrixView(T* d, int64_t r, int64_t c) : MatrixView(d, r, c, c) {}
  MatrixView(T* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  template <class U>
  requires std::is_same_v<const U, T> MatrixView(const MatrixView<U>& m) : MatrixView(m.data, m.rows, m.cols, m.stride) {}

  T* row(int64_t i) const { return data + i * stride; }
  std::span<T> row_span(int64_t i) const { return {row(i), static_cast<size_t>(cols)}; }
  MatrixView sub_rows(int64_t begin, int64_t count) const { return {row(begin), count, cols, stride}; }
  MatrixView sub_cols(int64_t begin, int64_t count) const { return {data + begin, rows, count, stride}; }
};

// Up to four dimensions, the last one contiguous.
class Shape {
 public:
  static constexpr int kMaxRank = 4;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    CHORAL_CHECK(dims.size() <= kMaxRank, "a tensor has at most four dimensions");
    for (int i = 0; i < rank_; ++i) dims_[i] = dims[i];
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  bool operator==(const Shape& other) const = default;
  std::string to_string() const;  // "[576, 1536]"

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// Contiguous, row-major. `data` is readable by the host only if `device.host_accessible`.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Device device;

  int64_t rows() const { return shape.rank() == 0 ? 1 : shape.elements() / cols(); }
  int64_t cols() const { return shape.rank() == 0 ? 1 : shape[shape.rank() - 1]; }
  int64_t size_bytes() const { return rows() * row_bytes(dtype, cols()); }
  const std::byte* row(int64_t i) const { return data + i * row_bytes(dtype, cols()); }
};

}  // namespace choral
