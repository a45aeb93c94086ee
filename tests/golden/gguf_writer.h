// Writes models and LoRA adapters as llama.cpp's converters do: GGUF's names, dimensions in its order, token_embd's A turned
// round, and in the llama family the rows of q and k (of an adapter: of their B) as LlamaModel.permute lays them. Knows nothing
// of the readers under test.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "golden/weight_set.h"
#include "lora/peft/adapter_file.h"

namespace choral::golden {

struct GgufForm {
  // As converters wrote at first: latent attention before its keys and values had tensors of their own, q, k, v and z of a delta
  // net in one.
  bool early = false;
  bool mxfp4_experts = false;  // the matrices of experts, whose numbers must be MXFP4's
};

// `config`: the model's config.json, whose rope_scaling is absent, yarn or longrope. Weights as float32, no tokenizer.
std::string gguf_model(const WeightSet& weights, const nlohmann::json& config, const GgufForm& form = {});

// `adapter`: PEFT's tensors, written in the types they have. `alpha` is all that the format has of its config.
std::string gguf_adapter(const lora::AdapterFile& adapter, double alpha, const nlohmann::json& config);

}  // namespace choral::golden
