// llama.cpp's LoRA adapters in GGUF: pairs "blk.3.attn_q.weight.lora_a" and "….lora_b" under the base's GGUF names, one alpha in
// the metadata, each module's rank its tensors' own. Gives PEFT's names and shapes: token_embd's A is stored turned round, and in
// the llama family q's and k's rows of B lie in pairs, as the base's do. Pure; any thread.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "io/gguf.h"
#include "lora/peft/adapter_file.h"
#include "lora/peft/adapter_tensor.h"

namespace choral::lora {

// Names and shapes as PEFT has them; values as in the file (any type), rows still in the file's order. Whole norm weights come
// through as "<module>.weight". A tensor of no known name is an error naming it. `shapes_only`: no value is read, what would be
// turned round has the shape and the type that it would have, and bytes that may not be read.
Result<std::vector<NamedTensor>> read_gguf_adapter(const std::shared_ptr<const io::GgufFile>& file, bool shapes_only = false);

}  // namespace choral::lora
