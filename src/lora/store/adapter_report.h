// What adapter_check.h finds out about an adapter. Values; printing them needs nothing else of this folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"
#include "lora/peft/base_name.h"

namespace choral::lora {

struct AdapterReport {
  std::string path;    // the file with the tensors
  std::string format;  // "safetensors", "torch", "gguf"
  uint64_t file_bytes = 0;
  int64_t tensor_bytes = 0;               // of the tensors that matter
  size_t tensors = 0;                     // in the file
  size_t modules = 0;                     // with a low-rank pair
  std::map<std::string, size_t> reached;  // their last names: "q_proj" -> how many
  size_t replaced = 0;                    // whole weights and biases
  std::vector<std::string> kinds;         // "LoRA", "rsLoRA", "DoRA", "embedding", …
  std::map<int64_t, size_t> ranks;        // rank -> modules that have it
  double lora_alpha = 0;
  float smallest_scaling = 0, largest_scaling = 0;
  std::string base_model;         // that the adapter names
  std::string base_architecture;  // that a GGUF adapter names: "llama"
  BaseMatch base_match = BaseMatch::kUnknown;
  std::string task_type, peft_version;
  std::vector<int32_t> invocation_tokens;
  std::optional<Sha256Digest> digest;  // with a model's targets only: LoRAModel::digest

  std::vector<std::string> ignored;     // "lora_dropout: acts in training only"
  std::vector<std::string> non_finite;  // tensors with a NaN or an infinity
  size_t zero_modules = 0;              // whose B is all zero
  bool zero_effect = false;             // nothing in it changes anything
  std::vector<std::string> problems;    // why it would be refused; empty: it can be served
  Code code = Code::kOk;                // of the refusal

  bool usable() const { return problems.empty(); }
};

}  // namespace choral::lora
