// Random LoRA adapters for every linear layer of a model, in memory or as PEFT files: benches need adapters' shapes, not their
// meaning. B is not zero, so nothing can be skipped. The same seed gives the same adapter.
#pragma once

#include <filesystem>
#include <span>

#include "lora/peft/lora_model.h"
#include "lora/target.h"

namespace choral::synthetic {

struct Adapter {
  int64_t rank = 8;
  DType dtype = DType::kBF16;  // f32, f16 or bf16
  uint64_t seed = 1;
};

Result<lora::LoRAModel> make_adapter(std::span<const lora::LoRATarget> targets, const Adapter& adapter);

// adapter_config.json and adapter_model.safetensors in `directory`, which is made. Gives the size of the tensors' file.
Result<int64_t> write_adapter(const std::filesystem::path& directory, std::span<const lora::LoRATarget> targets,
                              const Adapter& adapter);

}  // namespace choral::synthetic
