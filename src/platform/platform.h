// A device and all that is its own business: operators, memory, how weights are laid out. Resolved once at start-up.
// Immutable and thread-safe after that; kernels get their threads and scratch from the Context.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "platform/op_table.h"
#include "tensor/tensor.h"

namespace choral::platform {

class Platform {
 public:
  virtual ~Platform() = default;
  virtual std::string_view name() const = 0;  // "cpu"
  virtual Device device() const = 0;
  virtual const OpTable& ops() const = 0;

  // Zero-filled memory of this device: KV blocks, device-side tables.
  virtual Result<Tensor> allocate(DType dtype, Shape shape) const = 0;
  // Packs rows of stored tensors as `format` (a float type, or the GGUF type they are stored in) in this device's layout.
  virtual Result<std::unique_ptr<kernels::PackedMatrix>> prepack(const Context& ctx, std::span<const kernels::WeightRows> rows,
                                                                 DType format) const = 0;
};

const Platform& cpu_platform();

// "auto" or a platform's name; an unknown name is an error that lists the known ones.
Result<const Platform*> resolve_platform(std::string_view device);

}  // namespace choral::platform
