// What an adapter changes, module by module, for people who look at it. Read from its source, apart from what answers.
#pragma once

#include <span>
#include <vector>

#include "choral/llm.h"
#include "lora/peft/adapter_source.h"
#include "lora/peft/lora_model.h"
#include "lora/target.h"

namespace choral::engine {

Result<std::vector<AdapterLayer>> read_adapter_layers(const lora::AdapterSource& source,
                                                      std::span<const lora::LoRATarget> targets,
                                                      const lora::LoRALoadOptions& options);

}  // namespace choral::engine
