// What `choral adapter check DIR` says: everything about an adapter that can be known from its files alone, or with a model's
// targets also whether it fits. Never fails: what is wrong stands in `problems`, one line each. Pure; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "lora/lora_config.h"
#include "lora/peft/adapter_file.h"
#include "lora/peft/base_name.h"
#include "lora/target.h"

namespace choral::lora {

struct AdapterCheckOptions {
  LoRAConfig config = {};
  AdapterLimits limits = {};
  // Empty: no model is at hand; files are checked against themselves. Targets with base_row are read for DoRA.
  std::span<const LoRATarget> targets = {};
  int64_t head_dim = 0;                      // of that model, as LoRALoadOptions has it
  std::string base_class = {};               // likewise
  std::vector<std::string> base_names = {};  // likewise
  bool strict = false;                       // likewise
};

struct AdapterReport {
  std::string path;    // the file with the tensors
  std::string format;  // "safetensors", "torch", "gguf"
  uint64_t file_bytes = 0;
  int64_t tensor_bytes = 0;         // of the tensors that matter
  size_t tensors = 0;               // in the file
  size_t modules = 0;               // with a low-rank pair
  size_t replaced = 0;              // whole weights and biases
  std::vector<std::string> kinds;   // "LoRA", "rsLoRA", "DoRA", "embedding", …
  std::map<int64_t, size_t> ranks;  // rank -> modules that have it
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

AdapterReport check_adapter(const std::filesystem::path& path, const AdapterCheckOptions& options = {});

}  // namespace choral::lora
