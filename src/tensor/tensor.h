// An owned tensor: a shape, a type, a device and the storage. Move-only; `view()` lends it out.
// Storage is shared_ptr so that a device can bring its own memory and so that slices of a file's mapping keep it alive.
#pragma once

#include <memory>

#include "tensor/view.h"

namespace choral {

class Tensor {
 public:
  Tensor() = default;
  // Zero-filled host memory.
  static Result<Tensor> allocate(DType dtype, Shape shape);
  // Memory owned by someone else (a mapping, a device allocation), kept alive by `owner`.
  Tensor(std::shared_ptr<void> owner, std::byte* data, DType dtype, Shape shape, Device device);

  TensorView view() const { return {data_, dtype_, shape_, device_}; }
  std::byte* data() { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  Device device() const { return device_; }
  int64_t size_bytes() const { return view().size_bytes(); }
  bool empty() const { return data_ == nullptr; }

  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_), static_cast<size_t>(size_bytes()) / sizeof(T)};
  }
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), static_cast<size_t>(size_bytes()) / sizeof(T)};
  }

 private:
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Shape shape_;
  Device device_;
};

}  // namespace choral
