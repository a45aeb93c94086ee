// Gated activations of the MLP: y = act(left half of x)·(right half of x), x [m, 2n] -> y [m, n].
// CustomOps "silu_and_mul" and "gelu_and_mul" (tanh form); the layer's public name is "gated_activation".
#pragma once

#include <string>
#include <string_view>

#include "layers/module.h"

namespace choral::layers {

class GatedActivation : public platform::CustomOp {
 public:
  static constexpr std::string_view kLayerName = "gated_activation";
  struct Spec {
    std::string hidden_act;  // as config.json spells it: silu, swish, gelu_pytorch_tanh, gelu_new; others fail the builder
  };
  GatedActivation(Builder& builder, const Spec& spec);
  virtual ~GatedActivation() = default;

  // Whether silu_and_mul of this device does the same, also as part of a fused operator of `provider`.
  virtual bool may_fuse_silu(std::string_view provider) const {
    return op_name() == "silu_and_mul" && agrees_with<platform::ops::SiluAndMul>(provider);
  }

  virtual void forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y) const { op_(ctx, x, y); }

 private:
  const platform::OpOf<platform::ops::SiluAndMul>& op_;
};

}  // namespace choral::layers
