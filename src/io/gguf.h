// One GGUF file (versions 2 and 3, little endian): typed metadata, tensor descriptions, data. Hostile until open() has checked
// it: counts against the bytes left before anything is reserved, arithmetic without wrap-around, names once, rows of whole
// blocks, offsets aligned, inside the file and apart from each other. Shapes are turned round: GGUF's [cols, rows] becomes [rows,
// cols]. Thread-safe once opened. Views live as long as the file object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/config_map.h"
#include "io/file_bytes.h"
#include "tensor/view.h"

namespace choral::io {

struct GgufLimits {
  uint64_t max_tensors = 200'000;
  uint64_t max_metadata_entries = 65'536;
  uint64_t max_metadata_values =
      4'000'000;  // array elements included: a vocabulary of 1M tokens with scores, types and merges fits
  uint64_t max_key_bytes = 65'535;
  uint64_t max_string_bytes = 16 << 20;
  uint64_t max_tensor_name_bytes = 256;
};

struct GgufTensor {
  std::string name;  // as in the file: "blk.0.attn_q.weight"
  DType dtype = DType::kF32;
  Shape shape;          // row-major, [rows, cols]
  uint64_t offset = 0;  // within the file
  uint64_t size_bytes = 0;
};

struct GgufHeader {
  uint32_t version = 0;
  ConfigMap metadata;               // keys are literal: "llama.block_count"
  std::vector<GgufTensor> tensors;  // sorted by name

  const GgufTensor* find(std::string_view name) const;
};

// Checks all of `file` but the values. `file_name` is for messages. A ggml type Choral does not know is kUnsupported, by name.
Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view file_name, const GgufLimits& limits = {});

class GgufFile {
 public:
  // Maps the file.
  static Result<std::shared_ptr<const GgufFile>> open(const std::filesystem::path& path, const GgufLimits& limits = {});
  static Result<std::shared_ptr<const GgufFile>> parse(std::shared_ptr<const FileBytes> file, const GgufLimits& limits = {});

  const ConfigMap& metadata() const { return header_.metadata; }
  std::span<const GgufTensor> tensors() const { return header_.tensors; }  // sorted by name
  bool contains(std::string_view name) const { return header_.find(name) != nullptr; }
  Result<TensorView> find(std::string_view name) const;
  uint32_t version() const { return header_.version; }
  const FileBytes& file() const { return *file_; }
  void release(std::string_view name) const;  // see FileBytes::release; an unknown name is ignored

 private:
  GgufFile(std::shared_ptr<const FileBytes> file, GgufHeader header) : file_(std::move(file)), header_(std::move(header)) {}

  std::shared_ptr<const FileBytes> file_;
  GgufHeader header_;
};

}  // namespace choral::io
