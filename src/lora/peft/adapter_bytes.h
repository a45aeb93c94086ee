// An adapter whose files are in memory, under the names that they would have in its folder. Counterparts of read_adapter_file(),
// read_adapter_shapes() and PEFTHelper::from_local_dir(). Files of other names are ignored. Pure; any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "lora/peft/adapter_file.h"
#include "lora/peft/peft_helper.h"

namespace choral::lora {

using HeldFiles = std::map<std::string, std::shared_ptr<const io::FileBytes>, std::less<>>;

// The tensors stay in the bytes. With `shapes_only` no value is read, converted or copied.
Result<AdapterFile> read_adapter_bytes(const HeldFiles& files, bool shapes_only, const AdapterLimits& limits = {});
Result<PEFTHelper> read_config_bytes(const HeldFiles& files);
// The GGUF adapter among them, as gguf_adapter_path() finds it in a folder; null when there is none.
const std::string* gguf_name(const HeldFiles& files);

}  // namespace choral::lora
