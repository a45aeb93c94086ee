// Safetensors files of gpt-oss, Llama 4, Gemma 4, Mistral 4, Granite's and Qwen3.5's mixtures hold a parameter of all experts of
// a layer as one tensor. Here such a tensor is taken apart into those that an expert's linear layers have. As transformers 5 has
// it in memory, in an MLP ("….mlp.experts.") and without a bias beside it:
//   gate_up_proj [experts, 2·n, k]              -> gate_proj.weight [n, k], whose rows come first, and up_proj.weight
//   down_proj [experts, n, k]                   -> down_proj.weight [n, k]
// The others', "….experts.N.gate_up_proj.…" and "….down_proj.…"; gpt-oss's have biases beside them:
//   gate_up_proj [experts, k, n]                -> weight [n, k], which lies transposed
//   gate_up_proj_bias [experts, n]              -> bias [n]
//   gate_up_proj_blocks [experts, n, k/32, 16]  -> weight_packed [n, k/2]     the nibbles and
//   gate_up_proj_scales [experts, n, k/32]      -> weight_scale [n, k/32]     the scales of MXFP4
// gpt-oss's rows of gate_up_proj are the gate's and the up's in turns, and stay so; Llama 4's ("….feed_forward.experts.") are the
// gate's, then the up's, and it has no biases. Granite's stand beside the router, the gate's rows
// before the up's:
//   ….block_sparse_moe.input_linear [experts, n, k]   -> ….block_sparse_moe.experts.N.gate_up_proj, weight [n, k]
//   ….block_sparse_moe.output_linear [experts, n, k]  -> ….block_sparse_moe.experts.N.down_proj, weight [n, k]
// In Gemma 4, whose experts are no part of an MLP
// ("model.layers.3.experts.down_proj"), a matrix lies as it is used, and gate_up_proj has the gate's rows before the up's:
//   gate_up_proj [experts, n, k]                -> weight [n, k]
// Internal to io. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/status.h"
#include "tensor/view.h"

namespace choral::io {

struct StackedExperts {
  std::string before, after;  // of an expert's tensor's name, around its number: "model.layers.3.mlp.experts.", ".down_proj.bias"
  std::string second = {};    // not empty: an expert has two tensors, one behind the other, and this is `after` of the other one
  int64_t experts = 0;
  Shape shape;              // of an expert's tensor
  bool transposed = false;  // see SourceTensor

  int64_t parts() const { return second.empty() ? 1 : 2; }
  std::string name(int64_t expert, int64_t part = 0) const {
    return before + std::to_string(expert) + (part == 0 ? after : second);
  }
};

// None: a tensor of another kind. `contains` tells what else the file has: other families give these names to other things, and
// have no biases beside them. kCorrupt when the shape cannot be.
Result<std::optional<StackedExperts>> stacked_experts(std::string_view name, const Shape& shape,
                                                      FunctionRef<bool(std::string_view)> contains);

// A router's name as models know it: Granite's is a module within a module, "….router.layer.weight".
std::string router_name(std::string_view name);

}  // namespace choral::io
