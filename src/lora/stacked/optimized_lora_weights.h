// A copy of one module's A and B in one piece of memory, both starting on a cache line, in one float type: for those who multiply
// with the plain matrices themselves (merging tools, devices that take whole buffers). The engine's own steps use
// kernels::LoRAMatrix, which is packed for its loops. Immutable once made; any thread.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "lora/peft/lora_layer_weights.h"
#include "tensor/view.h"

namespace choral::lora {

class OptimizedLoRAWeights {
 public:
  // `dtype` is kF32, kF16 or kBF16; values are rounded to nearest even. A value that overflows in it is an error.
  static Result<OptimizedLoRAWeights> create(const LoRALayerWeights& layer, DType dtype);

  TensorView lora_a() const { return a_; }  // [r, in]
  TensorView lora_b() const { return b_; }  // [out, r]
  float scaling() const { return scaling_; }
  int64_t rank() const { return a_.shape[0]; }
  int64_t size_bytes() const { return static_cast<int64_t>(memory_.size_bytes()); }

 private:
  OptimizedLoRAWeights() = default;

  AlignedBuffer memory_;
  TensorView a_, b_;
  float scaling_ = 1.0F;
};

}  // namespace choral::lora
