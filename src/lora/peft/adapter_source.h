// Where an adapter is read from: its files, or bytes that a caller holds. It can be read again. A value; thread-safe.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "lora/peft/adapter_bytes.h"
#include "lora/peft/adapter_file.h"
#include "lora/peft/peft_helper.h"

namespace choral::lora {

class AdapterSource {
 public:
  AdapterSource(std::filesystem::path path) : path_(std::move(path)) {}  // a directory or a .gguf file
  AdapterSource(const std::string& path) : path_(path) {}
  explicit AdapterSource(std::shared_ptr<const HeldFiles> files) : files_(std::move(files)) {}

  bool in_memory() const { return files_ != nullptr; }
  const std::filesystem::path& path() const { return path_; }  // empty in memory
  std::string text() const;                                    // the path, or that it is in memory

  Result<PEFTHelper> read_config() const;
  Result<AdapterFile> read_shapes(const AdapterLimits& limits) const;
  Result<AdapterFile> read_file(const AdapterLimits& limits, io::ReadMemory& memory) const;
  // Another file that stands beside; empty when there is none of this name.
  Result<std::string> read_beside(const std::string& name, uint64_t max_bytes) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const HeldFiles> files_;
};

}  // namespace choral::lora
