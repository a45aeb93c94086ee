// The kinds of Checkpoint, one file each. Internal to io.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"
#include "io/gguf.h"

namespace choral::io {

// `beside`: files whose tensors are known by a name in front of theirs, "embedding_layers.0.".
using FilesBeside = std::vector<std::pair<std::string, std::filesystem::path>>;
Result<std::shared_ptr<const Checkpoint>> open_safetensors_checkpoint(const std::filesystem::path& file,
                                                                      const FilesBeside& beside = {});
// `index` is a model.safetensors.index.json. Index and shards must agree in every tensor, both ways.
Result<std::shared_ptr<const Checkpoint>> open_sharded_checkpoint(const std::filesystem::path& index,
                                                                  const FilesBeside& beside = {});
Result<std::shared_ptr<const Checkpoint>> open_gguf_checkpoint(std::shared_ptr<const GgufFile> file);

}  // namespace choral::io
