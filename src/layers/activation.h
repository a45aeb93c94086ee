// Gated activations of the MLP: y = act(left half of x)·(right half of x), x [m, 2n] -> y [m, n].
// CustomOps "silu_and_mul" and "gelu_and_mul" (tanh form); the layer's public name is "gated_activation".
// SwigluOAIAndMul, CustomOp "swigluoai_and_mul", has gates and ups in turns and holds them to a limit (gpt-oss).
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

  virtual void forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y) const { (*op_)(ctx, x, y); }

 protected:
  // For a class with a forward of its own.
  GatedActivation(std::string_view op_name, Builder& builder) : CustomOp(op_name, builder.custom_ops, builder.session) {}

 private:
  const platform::OpOf<platform::ops::SiluAndMul>* op_ = nullptr;
};

class SwigluOAIAndMul : public GatedActivation {
 public:
  static constexpr std::string_view kLayerName = "swigluoai_and_mul";
  using Spec = kernels::ClampedSwiglu;
  SwigluOAIAndMul(Builder& builder, const Spec& spec)
      : GatedActivation(kLayerName, builder), form_(spec), op_(bind<platform::ops::SwigluOaiAndMul>()) {}

  void forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y) const override {
    op_(ctx, x, form_, y);
  }

 private:
  kernels::ClampedSwiglu form_;
  const platform::OpOf<platform::ops::SwigluOaiAndMul>& op_;
};

}  // namespace choral::layers
