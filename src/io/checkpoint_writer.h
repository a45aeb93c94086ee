// The weights of a model as Hugging Face names their files: model.safetensors, or where they would be larger than a shard may be
// model-00001-of-00003.safetensors and so on with model.safetensors.index.json. Tensors come one after the other; no more than
// one is asked for at a time. The files are for a folder that nobody reads yet: each is put in place whole, but not all at once.
// Not thread-safe.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/safetensors_writer.h"

namespace choral::io {

class CheckpointWriter {
 public:
  static constexpr int64_t kUsualShardBytes = 5'000'000'000;  // what transformers takes

  // `tensors`: all that will come, in their order. A tensor larger than `max_shard_bytes` gets a shard of its own.
  static Result<std::unique_ptr<CheckpointWriter>> create(const std::filesystem::path& folder, std::vector<TensorToCome> tensors,
                                                          int64_t max_shard_bytes = kUsualShardBytes);

  // All of the next tensor.
  Status append(std::span<const std::byte> data);
  // Once every tensor was given.
  Status finish();

  int64_t total_bytes() const { return total_bytes_; }
  size_t files() const { return shards_.size(); }

 private:
  struct Shard {
    std::string name;
    size_t begin = 0, end = 0;  // of tensors_
  };

  CheckpointWriter() = default;
  void plan(int64_t max_shard_bytes);
  Status write_index() const;

  std::filesystem::path folder_;
  std::vector<TensorToCome> tensors_;
  std::vector<Shard> shards_;
  int64_t total_bytes_ = 0;
  size_t next_ = 0, shard_ = 0;
  std::unique_ptr<SafetensorsWriter> file_;
};

}  // namespace choral::io
