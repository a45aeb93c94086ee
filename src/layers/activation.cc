#include "layers/activation.h"

namespace choral::layers {
namespace {

bool names_silu(std::string_view act) { return act == "silu" || act == "swish"; }
bool names_gelu_tanh(std::string_view act) { return act == "gelu_pytorch_tanh" || act == "gelu_new"; }

}  // namespace

GatedActivation::GatedActivation(Builder& builder, const Spec& spec)
    : GatedActivation(names_silu(spec.hidden_act) ? "silu_and_mul" : "gelu_and_mul", builder) {
  op_ = names_silu(spec.hidden_act) ? &bind<platform::ops::SiluAndMul>() : &bind<platform::ops::GeluTanhAndMul>();
  if (!names_silu(spec.hidden_act) && !names_gelu_tanh(spec.hidden_act)) {
    builder.fail(unsupported("hidden_act '{}' is not known here; known: silu, gelu_pytorch_tanh", spec.hidden_act));
  }
}

}  // namespace choral::layers
