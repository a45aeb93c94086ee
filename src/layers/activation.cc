#include "layers/activation.h"

#include "kernels/ref/activation.h"

namespace choral::layers {
namespace {

bool names_silu(std::string_view act) { return act == "silu" || act == "swish"; }
bool names_gelu_tanh(std::string_view act) { return act == "gelu_pytorch_tanh" || act == "gelu_new"; }

}  // namespace

GatedActivation::GatedActivation(Builder& builder, std::string_view hidden_act)
    : CustomOp(names_silu(hidden_act) ? "silu_and_mul" : "gelu_and_mul", builder.custom_ops, builder.platform),
      is_silu_(names_silu(hidden_act)) {
  if (!is_silu_ && !names_gelu_tanh(hidden_act)) {
    builder.fail(unsupported("hidden_act '{}' is not known here; known: silu, gelu_pytorch_tanh", hidden_act));
  }
}

void GatedActivation::forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y) const {
  const bool native = form() == platform::OpForm::kNative;
  if (is_silu_)
    return native ? kernels::ref::activation_and_mul(kernels::Activation::kSilu, x, y) : ctx.ops.silu_and_mul(ctx, x, y);
  return native ? kernels::ref::activation_and_mul(kernels::Activation::kGeluTanh, x, y) : ctx.ops.gelu_tanh_and_mul(ctx, x, y);
}

}  // namespace choral::layers
