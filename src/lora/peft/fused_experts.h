// Adapters of experts whose base holds each parameter of all experts as one tensor (PEFT's target_parameters): one pair of
// tensors a layer and parameter, taken apart into a pair an expert. Files name the module only, once for each of its parameters,
// the first of target_parameters innermost: "….experts.base_layer.lora_A" is of the first of two, "….experts.lora_A" of the
// second.
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

// Whether `parameters` names the parameter that expert module `module` ("….experts.3.down_proj") is a part of: by its whole name
// ("….experts.down_proj") or an end of it.
bool names_parameter_of(std::span<const std::string> parameters, std::string_view module);

// Whether `parameters` names the weight of module `module`: "router.weight". Newer transformers have a router's without a linear
// layer around it; the pair is as a linear layer's.
bool names_weight_of(std::span<const std::string> parameters, std::string_view module);

// How many experts a layer has: asked with its module ("….experts"), a parameter, and the rows of the parameter's lora_A.
// 0: it has no such parameter.
using CountExperts = std::function<int64_t(std::string_view experts, std::string_view parameter, int64_t a_rows)>;

// `tensors` with each expert's own in the place of fused ones. With `shapes_only` their values may not be read and those of the
// expert's are nobody's. What does not fit becomes a problem and is left out.
std::vector<NamedTensor> split_fused_experts(std::span<const NamedTensor> tensors, std::span<const std::string> parameters,
                                             const CountExperts& count_experts, bool shapes_only, ProblemList& problems);

}  // namespace choral::lora
