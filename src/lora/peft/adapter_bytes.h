// read_adapter_file() and read_adapter_shapes() of a safetensors file that stands in memory. Pure; any thread.
#pragma once

#include <memory>

#include "lora/peft/adapter_file.h"

namespace choral::lora {

// The tensors stay in `safetensors`. With `shapes_only` no value is read, converted or copied.
Result<AdapterFile> read_adapter_bytes(std::shared_ptr<const io::FileBytes> safetensors, bool shapes_only,
                                       const AdapterLimits& limits = {});

}  // namespace choral::lora
