// Takes apart the tensor names of an adapter file: the module of the model, and the part of the module. Knows every spelling that
// PEFT's versions have written (see the table in the .cc). Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace choral::lora {

enum class TensorPart : uint8_t {
  kLoraA,
  kLoraB,
  kLoraBias,    // lora_B.bias
  kEmbeddingA,  // lora_embedding_A [r, vocabulary]
  kEmbeddingB,  // lora_embedding_B [width, r]
  kMagnitude,   // DoRA's
  kBaseWeight,  // base_layer.weight: a frozen copy of the base's
  kBaseBias,    // base_layer.bias: trained under bias = all
  kWeight,      // the module's whole weight (modules_to_save)
  kBias,        // the module's whole bias
  kTokenRows,   // token_adapter.trainable_tokens_delta
  kIdleBias,    // original_module.bias: that of a module which modules_to_save stands in for; nobody computes with it
  kChoiceBias,  // e_score_correction_bias, a router's selection bias
  kNewRows,     // of tokens that the base does not have, in a file of their own
};

struct TensorName {
  std::string module;  // "model.layers.0.self_attn.q_proj", without "base_model.model."
  TensorPart part = TensorPart::kLoraA;
};

// Without "base_model.model.".
std::string_view without_peft_prefix(std::string_view name);
// Nothing when the name has no known tail.
std::optional<TensorName> parse_tensor_name(std::string_view name);

// The tail PEFT writes: "lora_A.weight".
std::string_view part_tail(TensorPart part);

// A module as transformers calls it from version 5 on: Mixtral's "block_sparse_moe" is "mlp" there, and an expert's w1, w3 and w2
// are gate_proj, up_proj and down_proj. Others as they are.
std::string renamed_in_5(std::string_view module);

// Whether `name` is `module` or its last pieces: "mlp.up_proj" of "model.layers.0.mlp.up_proj".
bool is_end_of(std::string_view name, std::string_view module);

}  // namespace choral::lora
