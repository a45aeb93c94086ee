// Turns rows into sequences: runs of consecutive rows with the same index, as sgmv's three arrays and as segments. It is made
// once a batch for all layers. One object is reused: after reserve() mapping allocates nothing. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace choral::lora {

class BatchLoRADataMapper {
 public:
  void reserve(int64_t max_rows);

  // `indices` of the rows are the kernels': positions in the stacks, -1 = nothing.
  void map_rows(std::span<const int32_t> indices);

  // By sequence; neighbours have different indices.
  std::span<const int32_t> starts() const { return starts_; }  // the first row of each
  std::span<const int32_t> lengths() const { return lengths_; }
  std::span<const int32_t> indices() const { return indices_; }
  size_t count() const { return starts_.size(); }
  int64_t row_count() const { return row_count_; }
  int64_t max_length() const { return max_length_; }
  bool no_lora() const { return no_lora_; }  // every index is -1

 private:
  std::vector<int32_t> starts_, lengths_, indices_;
  int64_t row_count_ = 0, max_length_ = 0;
  bool no_lora_ = true;
};

}  // namespace choral::lora
