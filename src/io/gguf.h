// A GGUF file (versions 2 and 3, little endian), or the set that one was split into: typed metadata, tensor descriptions, data.
// Hostile until open() has checked it: counts against the bytes left before anything is reserved, arithmetic without wrap-around,
// names once, rows of whole blocks, offsets aligned, inside their file and apart from each other. Shapes are turned round: GGUF's
// [cols, rows] becomes [rows, cols]. Thread-safe once opened. Views live as long as the file object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
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
  uint64_t offset = 0;  // within its file
  uint64_t size_bytes = 0;
  uint32_t part = 0;  // which file of a split model has it
};

struct GgufHeader {
  uint32_t version = 0;
  ConfigMap metadata;               // keys are literal: "llama.block_count"
  std::vector<GgufTensor> tensors;  // sorted by name

  const GgufTensor* find(std::string_view name) const;
};

// Checks all of `file` but the values. `file_name` is for messages. A ggml type Choral does not know is kUnsupported, by name.
Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view file_name, const GgufLimits& limits = {});

// "m-00002-of-00003.gguf": one of the files that a model was split into.
struct GgufPart {
  std::string stem;  // "m"
  int64_t number = 0, count = 0;

  std::string name(int64_t number) const;  // of another of them
};
std::optional<GgufPart> gguf_part(std::string_view file_name);
void keep_first_parts(std::vector<std::string>& file_names);  // which bring the others along

class GgufFile {
 public:
  // Maps the file; of a split model, whichever of its files is named, all of them.
  static Result<std::shared_ptr<const GgufFile>> open(const std::filesystem::path& path, const GgufLimits& limits = {});
  // One file by itself, which may be no part of others.
  static Result<std::shared_ptr<const GgufFile>> parse(std::shared_ptr<const FileBytes> file, const GgufLimits& limits = {});

  const ConfigMap& metadata() const { return header_.metadata; }
  std::span<const GgufTensor> tensors() const { return header_.tensors; }  // sorted by name
  bool contains(std::string_view name) const { return header_.find(name) != nullptr; }
  Result<TensorView> find(std::string_view name) const;
  uint32_t version() const { return header_.version; }
  const std::string& path() const { return parts_.front()->path(); }
  Status check_unchanged() const;             // see FileBytes::check_unchanged
  void release(std::string_view name) const;  // see FileBytes::release; an unknown name is ignored
  std::span<const std::shared_ptr<const FileBytes>> parts() const { return parts_; }

 private:
  GgufFile(std::vector<std::shared_ptr<const FileBytes>> parts, GgufHeader header)
      : parts_(std::move(parts)), header_(std::move(header)) {}

  static Result<std::shared_ptr<const GgufFile>> open_parts(const std::filesystem::path& path,
                                                            std::shared_ptr<const FileBytes> named, GgufHeader header_of_named,
                                                            const GgufLimits& limits);

  std::vector<std::shared_ptr<const FileBytes>> parts_;
  GgufHeader header_;  // metadata of the first part, tensors of all
};

}  // namespace choral::io
