// Adapters as they lie on the disk: which a root has, by which names requests can have them, and what their files say. No model
// is opened and no value of a tensor is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "lora/peft/adapter_name.h"
#include "lora/peft/adapters_in_root.h"
#include "lora/peft/base_name.h"

namespace choral::tools {

using lora::adapter_in_root;
using lora::adapters_in_root;
using lora::check_adapter_name;
using lora::FoundAdapter;
using lora::kBaseName;
using lora::other_base_note;

// Of a path, or of org/name in the local Hugging Face cache.
Result<std::string> find_adapter(std::string_view path_or_name);

struct AdapterSummary {
  std::string kind;  // "LoRA", "DoRA, rsLoRA"
  int64_t rank = 0;  // the largest; 0: only the tensors say it
  uint64_t file_bytes = 0;
  std::string base;  // that it names
};
// An error says why it could not be served, as far as its config and its tensors' headers tell.
Result<AdapterSummary> summarise_adapter(const std::string& path);

}  // namespace choral::tools
