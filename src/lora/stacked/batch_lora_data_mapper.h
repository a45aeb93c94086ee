// A step's rows as the stacked operators want them: by row (bgmv) and by sequence (sgmv), a sequence being all neighbours of one
// place in the stacks. Made once for all layers, from runs, so that nobody looks for runs among rows. One object is reused: after
// reserve() mapping allocates nothing. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lora/stacked/lora_mapping.h"

namespace choral::lora {

class BatchLoRADataMapper {
 public:
  void reserve(int64_t max_rows);

  // stack_position[index]: the place of an index's adapter in the stacks, -1 for none.
  void map_sequence_to_adapters(const LoRARows& rows, std::span<const int32_t> stack_position);

  // By sequence; neighbours have different places.
  std::span<const int32_t> starts() const { return starts_; }  // the first row of each
  std::span<const int32_t> lengths() const { return lengths_; }
  std::span<const int32_t> indices() const { return indices_; }  // places, -1 = nothing
  std::span<const int32_t> row_indices() const { return row_indices_; }
  int64_t row_count() const { return std::ssize(row_indices_); }
  int64_t max_length() const { return max_length_; }
  bool no_lora() const { return no_lora_; }  // every index is -1

 private:
  void append(int64_t length, int32_t position);
  void create_batch_indices();

  std::vector<int32_t> starts_, lengths_, indices_, row_indices_;
  int64_t max_length_ = 0;
  bool no_lora_ = true;
};

}  // namespace choral::lora
