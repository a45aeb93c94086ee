// A tensor of an adapter with a share in its memory: a file's mapping, or memory of its own (converted or unpickled tensors).
// Copies share the bytes. Data may start at any address. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tensor/tensor.h"
#include "tensor/view.h"

namespace choral::lora {

struct AdapterTensor {
  TensorView view;
  std::shared_ptr<const void> owner;

  AdapterTensor() = default;
  AdapterTensor(TensorView v, std::shared_ptr<const void> o) : view(v), owner(std::move(o)) {}
  explicit AdapterTensor(Tensor tensor);  // takes the memory over

  bool empty() const { return view.data == nullptr; }
  int64_t size_bytes() const { return empty() ? 0 : view.size_bytes(); }
  AdapterTensor rows(int64_t begin, int64_t count) const;  // of a matrix or a vector
};

struct NamedTensor {
  std::string name;  // as PEFT writes it
  AdapterTensor tensor;
};

// The flat index of the first NaN or infinity of a F32, F16, BF16 or Q8_0 tensor; of Q8_0, of its block.
std::optional<int64_t> first_non_finite(const TensorView& tensor);
bool is_all_zero(const TensorView& tensor);

// The Euclidean length of a row, summed in double.
double length_of(std::span<const float> row);

// A copy as float, of any type kernels::dequantise_row reads.
Result<Tensor> to_float_tensor(const TensorView& tensor);

}  // namespace choral::lora
