// Writes one GGUF file of version 3: metadata, tensor descriptions, then the tensors in the order given, each 32-aligned. The
// file is put in place whole. Shapes are ours, [rows, cols]; names and keys are GGUF's. What a value may be is the caller's
// business: gguf.h reads it back. Not thread-safe.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf_types.h"
#include "io/new_file.h"
#include "io/safetensors_writer.h"

namespace choral::io {

// Entries in the order in which they were set; a key is set once.
class GgufMetadata {
 public:
  void set_u32(std::string_view key, uint32_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, std::span<const std::string> values);
  void set_f32s(std::string_view key, std::span<const float> values);
  void set_i32s(std::string_view key, std::span<const int32_t> values);
  void set_bools(std::string_view key, const std::vector<bool>& values);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, GgufValueType type);
  void begin_array(std::string_view key, GgufValueType type, size_t count);

  std::string bytes_;
  uint64_t count_ = 0;
};

// What stands before the data, up to the first tensor, and how long the whole file is.
struct GgufBeginning {
  std::string bytes;
  uint64_t file_bytes = 0;
};
// How many bytes of the file a tensor of `size_bytes` has.
uint64_t gguf_aligned(uint64_t size_bytes);
GgufBeginning gguf_beginning(const GgufMetadata& metadata, std::span<const TensorToCome> tensors);

class GgufWriter {
 public:
  static Result<std::unique_ptr<GgufWriter>> create(const std::filesystem::path& path, const GgufMetadata& metadata,
                                                    std::vector<TensorToCome> tensors);

  const std::filesystem::path& unfinished_path() const { return file_->unfinished_path(); }
  // What follows of the data: of one tensor at a time, which may come in pieces.
  Status append(std::span<const std::byte> data);
  // Once every tensor was given.
  Status finish();

 private:
  GgufWriter() = default;

  std::unique_ptr<NewFile> file_;
  std::vector<TensorToCome> tensors_;
  size_t next_ = 0;
  int64_t given_ = 0;  // bytes of the next tensor
};

}  // namespace choral::io
