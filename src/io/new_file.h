// A file that is there only when it is whole: written beside its place under another name, then renamed. Not thread-safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>

#include "base/status.h"

namespace choral::io {

class NewFile {
 public:
  static std::filesystem::path partial_path(const std::filesystem::path& path);  // where it is written
  static Result<std::unique_ptr<NewFile>> create(const std::filesystem::path& path);
  ~NewFile();  // without finish() nothing stays
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  Status write(std::span<const std::byte> bytes);
  Status finish();

 private:
  NewFile() = default;
  Status cannot_write() const;

  std::filesystem::path path_, beside_;
  std::ofstream file_;
  bool finished_ = false;
};

}  // namespace choral::io
