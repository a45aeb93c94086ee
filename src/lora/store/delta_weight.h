// What a module's pair adds to its base's weight: s·B·A, the pair's scaling times its two matrices. The whole is as large as the
// weight, so it is computed a few rows at a time. DoRA measures the rows of base and delta together (dora_factors.h).
#pragma once

#include <utility>

#include "base/cpu_level.h"
#include "base/status.h"
#include "kernels/lora/lora_matrix.h"
#include "lora/peft/lora_layer_weights.h"
#include "tensor/tensor.h"

namespace choral::lora {

class DeltaWeight {
 public:
  // Keeps copies of both matrices, as floats.
  static Result<DeltaWeight> of(const LoRALayerWeights& layer);

  // w += rows [first, first + w.rows). Safe on any thread.
  void compute_delta_weight(CpuLevel level, int64_t first, MatrixView<float> w) const;

 private:
  DeltaWeight(Tensor scaled_b, kernels::LoRAMatrix expander) : scaled_b_(std::move(scaled_b)), expander_(std::move(expander)) {}

  Tensor scaled_b_;               // [out, rank]
  kernels::LoRAMatrix expander_;  // A in the place of B: lora_expand() makes (s·B)·A of (s·B)
};

}  // namespace choral::lora
