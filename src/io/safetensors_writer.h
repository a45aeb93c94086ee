// Writes one .safetensors file: the header, padded so that data begins 8-aligned, then the tensors in the order given. The file
// is put in place whole (new_file.h), so a reader never sees half of one.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "io/new_file.h"
#include "tensor/view.h"

namespace choral::io {

struct TensorToWrite {
  std::string name;
  TensorView view;  // plain types that the format knows
};

Status write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata = {});

struct TensorToCome {
  std::string name;
  DType dtype;
  Shape shape;

  int64_t size_bytes() const { return TensorView{nullptr, dtype, shape, kCpuDevice}.size_bytes(); }
};

// The same where the data comes a piece at a time. Not thread-safe.
class SafetensorsWriter {
 public:
  static Result<std::unique_ptr<SafetensorsWriter>> create(const std::filesystem::path& path,
                                                           std::span<const TensorToCome> tensors,
                                                           const std::map<std::string, std::string>& metadata = {});

  // What follows of the data, which is all of the tensors' one after the other.
  Status append(std::span<const std::byte> data);
  // Once all of it was given.
  Status finish();

 private:
  SafetensorsWriter() = default;

  std::unique_ptr<NewFile> file_;
  int64_t left_ = 0;  // bytes to come
};

}  // namespace choral::io
