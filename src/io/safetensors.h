// One .safetensors file: u64 header length, a JSON header {name: {dtype, shape, data_offsets}}, the data. The file is hostile
// until every rule of the format has been checked at open(): header within the file and the limit, UTF-8, an object, no name
// twice, known dtypes, shape x dtype (overflow-checked) equal to the offsets, offsets gapless from 0 to the very end of the file.
// Data may start at any address: read it with memcpy or unaligned loads, never through a float pointer.
// Thread-safe once opened. Views live as long as the file object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/file_bytes.h"
#include "tensor/view.h"

namespace choral::io {

struct SafetensorsLimits {
  uint64_t max_header_bytes = 100'000'000;  // the format's own; adapters should pass 16 MiB
  uint64_t max_tensors = 200'000;
  uint64_t max_name_bytes = 1024;
  uint64_t max_metadata_bytes = 8 << 20;
};

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  int rank = 0;  // as in the file: up to 8, where `shape` holds up to 4 and stays empty beyond
  Shape shape;
  uint64_t begin = 0;  // within the data section
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // sorted by name
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // of the data section within the file

  const SafetensorsEntry* find(std::string_view name) const;
};

// Checks all of `file` but the values. `file_name` is for messages.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view file_name,
                                            const SafetensorsLimits& limits = {});

class SafetensorsFile {
 public:
  // Maps the file.
  static Result<std::shared_ptr<const SafetensorsFile>> open(const std::filesystem::path& path,
                                                             const SafetensorsLimits& limits = {});
  static Result<std::shared_ptr<const SafetensorsFile>> parse(std::shared_ptr<const FileBytes> file,
                                                              const SafetensorsLimits& limits = {});

  // kNotFound names the file and the nearest name; an empty tensor or one of more than four dimensions is kUnsupported.
  Result<TensorView> find(std::string_view name) const;
  bool contains(std::string_view name) const { return header_.find(name) != nullptr; }
  std::span<const SafetensorsEntry> entries() const { return header_.entries; }  // sorted by name
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const FileBytes& file() const { return *file_; }
  void release(std::string_view name) const;  // see FileBytes::release; an unknown name is ignored

 private:
  SafetensorsFile(std::shared_ptr<const FileBytes> file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}

  std::shared_ptr<const FileBytes> file_;
  SafetensorsHeader header_;
};

}  // namespace choral::io
