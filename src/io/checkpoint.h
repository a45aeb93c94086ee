// The weights of a model by their Hugging Face names, whatever holds them: model.safetensors, a sharded set with its index, a
// single .safetensors file, or a GGUF file (whose names are mapped). Loaders ask for names and never see a file format. Data may
// start at any address: read it with memcpy or unaligned loads, never through a float pointer. Thread-safe once opened. Views
// live as long as the Checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/file_bytes.h"
#include "io/model_location.h"
#include "tensor/view.h"

namespace choral::io {

// A stored matrix that has a share of another one's rows: `rows` at a time.
struct RowsInTurn {
  TensorView view;  // [all rows, cols], whatever its own shape
  int64_t rows = 0;
  bool transposed = false;  // each turn's are the columns of a matrix: view is [turns · cols, rows]
};

struct SourceTensor {
  TensorView view;
  // Empty, or one index per row: row i of the Hugging Face tensor is row row_order[i] of `view`. GGUF files of the llama family
  // hold q_proj and k_proj with each head's rows interleaved; whoever packs such a matrix (or copies its bias) applies the order.
  std::vector<int32_t> row_order;
  // By how much each element of `view` is more than the Hugging Face tensor's: GGUF files hold Gemma's norms as 1 + w.
  float added = 0;
  // The file has columns where `view` says rows: element [i, j] is element j·rows + i of the data. Whoever reads such a matrix
  // turns it round (quant/shards.h).
  bool transposed = false;
  // Not empty: the file has the rows in several matrices, which give theirs in turns, and `view` says type and shape only.
  // Whoever reads it joins them (quant/joined_rows.h).
  std::vector<RowsInTurn> parts = {};
};

// A file by what tells its content from others that it had (RegularFile::identity).
struct FileIdentity {
  std::string path;  // without links on its way
  std::string content;
};

class Checkpoint {
 public:
  // A model directory, a .safetensors file or a .gguf file.
  static Result<std::shared_ptr<const Checkpoint>> open(const std::filesystem::path& path);
  static Result<std::shared_ptr<const Checkpoint>> open(const ModelLocation& location);
  virtual ~Checkpoint() = default;

  // kNotFound names the files and the nearest existing name.
  virtual Result<SourceTensor> find(std::string_view name) const = 0;
  virtual bool contains(std::string_view name) const = 0;
  virtual void release(std::string_view name) const = 0;  // gives the tensor's pages back after packing; see MappedFile::release
  // kUnavailable when a file was cut or written to since it was opened: what was read is no weight. To be asked after the last
  // read. A file that was replaced by rename or removed is none of this.
  virtual Status check_unchanged() const = 0;
  // The files that it is, to tell it by; empty where it can't be told whether they stay what they are (FileBytes::identity).
  virtual std::vector<FileIdentity> identity() const = 0;
  virtual std::string description() const = 0;  // "GGUF v3, llama, 272 tensors, 93.8 MiB"

  const std::vector<std::string>& names() const { return names_; }  // sorted
  uint64_t total_bytes() const { return total_bytes_; }             // of all tensors

 protected:
  Status missing(std::string_view name, std::string_view where) const;
  // Adds a file to what identity() says. False: it can't be told by anything.
  static bool add_identity(const FileBytes& file, std::vector<FileIdentity>& identity);

  std::vector<std::string> names_;
  uint64_t total_bytes_ = 0;
};

}  // namespace choral::io
