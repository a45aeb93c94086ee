// What one voice adds to some columns of a layer, as plain matrices for a device's stacks: A and B of all its terms with ranks
// side by side, scales and factors multiplied in, padded with zeros to the stack's rank, both starting on a cache line. Made by
// reading the packed panels back, so that the host keeps one copy of an adapter. Immutable once made; any thread.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "lora/store/packed_adapter.h"
#include "tensor/view.h"

namespace choral::lora {

// Columns of a target's output that have an A of their own: one projection of a stacked layer.
struct LoRAColumns {
  int64_t begin = 0;
  int64_t count = 0;
};

class OptimizedLoRAWeights {
 public:
  // `dtype` is kF32, kF16 or kBF16; values are rounded to nearest even, once. `rank` is at least voice_rank(). A value that
  // overflows in the type is an error.
  static Result<OptimizedLoRAWeights> create(const PackedVoice& voice, int target, LoRAColumns columns, int64_t in, int64_t rank,
                                             DType dtype);
  // Of the voice's terms together in these columns; 0 = it leaves them alone.
  static int64_t voice_rank(const PackedVoice& voice, int target, LoRAColumns columns);

  TensorView lora_a() const { return a_; }  // [rank, in]
  TensorView lora_b() const { return b_; }  // [columns, rank]
  int64_t size_bytes() const { return static_cast<int64_t>(memory_.size_bytes()); }

 private:
  OptimizedLoRAWeights() = default;

  AlignedBuffer memory_;
  TensorView a_, b_;
};

}  // namespace choral::lora
