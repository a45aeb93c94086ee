// Rotary positions of q and k. The table is made once a model, shared by its layers.
// CustomOp "rotary_embedding": the platform's kernel, or the plain loop when it is switched off.
#pragma once

#include "layers/module.h"

namespace choral::layers {

class RotaryEmbedding : public platform::CustomOp {
 public:
  RotaryEmbedding(Builder& builder, const kernels::RotaryParams& params);

  // In place. q [tokens, heads·head_dim], k [tokens, kv_heads·head_dim]
  void forward(const platform::Context& ctx, std::span<const int32_t> positions, MatrixView<float> q, MatrixView<float> k) const;

 private:
  void rotate_native(std::span<const int32_t> positions, MatrixView<float> x) const;

  kernels::RotaryTable table_;
};

}  // namespace choral::layers
