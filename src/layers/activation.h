// Gated activations of the MLP: y = act(left half of x)·(right half of x), x [m, 2n] -> y [m, n].
// CustomOps "silu_and_mul" and "gelu_and_mul" (tanh form).
#pragma once

#include <memory>
#include <string_view>

#include "layers/module.h"

namespace choral::layers {

class GatedActivation : public platform::CustomOp {
 public:
  // `hidden_act` as config.json spells it: silu, swish, gelu_pytorch_tanh, gelu_new; another name is an error of the builder.
  GatedActivation(Builder& builder, std::string_view hidden_act);

  void forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y) const;

 private:
  bool is_silu_;
};

}  // namespace choral::layers
