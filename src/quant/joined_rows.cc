#include "quant/joined_rows.h"

#include <cstring>

#include "kernels/quant/dequantise.h"

namespace choral::quant {
namespace {

// `rows` rows in `type`, which is their own or float32.
void copy_rows(const TensorView& view, int64_t first, int64_t rows, int64_t cols, DType type, std::byte* to) {
  const int64_t from_bytes = row_bytes(view.dtype, cols), to_bytes = row_bytes(type, cols);
  const std::byte* from = view.data + first * from_bytes;
  if (type == view.dtype) {
    std::memcpy(to, from, static_cast<size_t>(rows * from_bytes));
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    kernels::dequantise_row(view.dtype, from + r * from_bytes, cols, reinterpret_cast<float*>(to + r * to_bytes));
  }
}

}  // namespace

int64_t turns_of(const io::SourceTensor& weight) {
  int64_t rows = 0;
  for (const auto& part : weight.parts) rows += part.rows;
  return weight.view.shape[0] / rows;
}

void join_turns(const io::SourceTensor& weight, int64_t begin, int64_t end, std::byte* to) {
  const DType type = weight.view.dtype;
  const int64_t cols = weight.view.shape.rank() == 1 ? 1 : weight.view.cols();  // a vector's rows are its elements
  std::vector<std::byte> turned;
  for (int64_t turn = begin; turn < end; ++turn) {
    for (const auto& part : weight.parts) {
      const int64_t bytes = part.rows * row_bytes(type, cols);
      if (part.transposed) {
        const int64_t element = row_bytes(type, 1);
        turned.resize(static_cast<size_t>(bytes));
        copy_rows(part.view, turn * cols, cols, part.rows, type, turned.data());
        for (int64_t r = 0; r < part.rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            std::memcpy(to + (r * cols + c) * element, turned.data() + (c * part.rows + r) * element,
                        static_cast<size_t>(element));
          }
        }
      } else {
        copy_rows(part.view, turn * part.rows, part.rows, cols, type, to);
      }
      to += bytes;
    }
  }
}

}  // namespace choral::quant
