// Writes one .safetensors file: the header, padded so that data begins 8-aligned, then the tensors in the order given. The file
// is put in place whole (written beside it, then renamed), so a reader never sees half of one.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "base/status.h"
#include "tensor/view.h"

namespace choral::io {

struct TensorToWrite {
  std::string name;
  TensorView view;  // plain types that the format knows
};

Status write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace choral::io
