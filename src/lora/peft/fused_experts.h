// Adapters of parameters (PEFT's target_parameters). A module's weight is adapted as the module is: "mlp.gate.weight". Where the
// base holds each parameter of all experts as one tensor, the file has one pair of tensors a layer and parameter, taken apart
// here into a pair an expert. It names the module only, once for each parameter that is adapted, in the order in which the module
// defines them, whatever the config's order is: gate_up_proj is inside, "….experts.base_layer.lora_A", if down_proj is adapted
// too, "….experts.lora_A".
//   lora_A [experts·r, in]: expert e has rows e·r … e·r + r - 1;  lora_B [out, r·experts]: it has columns j·experts + e of rank
//   j.
// Pure; any thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/peft/adapter_tensor.h"
#include "lora/problem_list.h"

namespace choral::lora {

// "model.layers.1.mlp.experts", or that within ".base_layer"s: the experts of a mixture as one module.
bool is_fused_experts(std::string_view module);

// "model.layers.1.mlp.experts.3.up_proj": a matrix of one expert.
bool is_of_expert(std::string_view module);

// "experts.down_proj", "gate_up_proj", "mlp.gate.weight": a parameter that may be adapted in some model.
bool is_parameter(std::string_view name);

// The parameter by which PEFT knows `module`: "….experts.down_proj" of "….experts.3.down_proj", else its weight.
std::string parameter_of(std::string_view module);

// Whether `parameters` names parameter_of(module), by its whole name or an end of it.
bool names_parameter_of(std::span<const std::string> parameters, std::string_view module);

// How many experts a layer has: asked with its module ("….experts"), a parameter, and the rows of the parameter's lora_A.
// 0: it has no such parameter.
using CountExperts = std::function<int64_t(std::string_view experts, std::string_view parameter, int64_t a_rows)>;

// `tensors` with each expert's own in the place of fused ones. With `shapes_only` their values may not be read, and those of each
// expert's tensors have no meaning. What does not fit becomes a problem and is left out.
std::vector<NamedTensor> split_fused_experts(std::span<const NamedTensor> tensors, std::span<const std::string> parameters,
                                             const CountExperts& count_experts, bool shapes_only, ProblemList& problems);

}  // namespace choral::lora
