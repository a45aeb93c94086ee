#include "tensor/tensor.h"

#include "base/aligned_buffer.h"

namespace choral {

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i == 0 ? "" : ", ") + std::to_string(dims_[i]);
  return text + "]";
}

Result<Tensor> Tensor::allocate(DType dtype, Shape shape) {
  const TensorView wanted{nullptr, dtype, shape, kCpuDevice};
  CHORAL_TRY(auto buffer, AlignedBuffer::allocate(wanted.size_bytes()));
  auto owner = std::make_shared<AlignedBuffer>(std::move(buffer));
  std::byte* data = owner->data();
  return Tensor(std::move(owner), data, dtype, shape, kCpuDevice);
}

Tensor::Tensor(std::shared_ptr<void> owner, std::byte* data, DType dtype, Shape shape, Device device)
    : owner_(std::move(owner)), data_(data), dtype_(dtype), shape_(shape), device_(device) {}

}  // namespace choral
