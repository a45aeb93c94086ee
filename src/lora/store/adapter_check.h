// The content of `choral adapter check DIR`: everything about an adapter that its files alone tell, and with a model's targets
// also whether it fits. Never fails: faults are in `problems`, one line each. Pure; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lora/lora_config.h"
#include "lora/peft/adapter_file.h"
#include "lora/store/adapter_report.h"
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

AdapterReport check_adapter(const std::filesystem::path& path, const AdapterCheckOptions& options = {});

// Whether config and shapes fit options.targets, without a look at any value: what a list of many can afford.
Status check_fit(const std::filesystem::path& path, const AdapterCheckOptions& options);

}  // namespace choral::lora
