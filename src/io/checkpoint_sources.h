// The kinds of Checkpoint, one file each. Internal to io.
#pragma once

#include <filesystem>
#include <memory>

#include "base/status.h"
#include "io/checkpoint.h"

namespace choral::io {

Result<std::shared_ptr<const Checkpoint>> open_safetensors_checkpoint(const std::filesystem::path& file);
// `index` is a model.safetensors.index.json. Index and shards must agree in every tensor, both ways.
Result<std::shared_ptr<const Checkpoint>> open_sharded_checkpoint(const std::filesystem::path& index);
Result<std::shared_ptr<const Checkpoint>> open_gguf_checkpoint(const std::filesystem::path& file);

}  // namespace choral::io
