// From sequences to rows: given the adapter of each sequence of a step and its number of rows, the adapter of each row, and the
// runs of equal ones. What a batch's kernels need to know, made once for all layers. Ids may be adapters' ids or slots; 0 is the
// base. One object is reused: after reserve() mapping allocates nothing. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "lora/plan/lora_segment.h"

namespace choral::lora {

class BatchLoRADataMapper {
 public:
  // Tokens of one step at most: beyond it something is wrong with the lengths.
  static constexpr int64_t kMostTokens = int64_t{1} << 28;

  void reserve(int64_t max_tokens, int64_t max_sequences);

  // ids[i] and lengths[i] are sequence i's; a length may be 0. On invalid_argument (different counts, negative numbers, too many
  // tokens) the last mapping stays.
  Status map_sequence_to_adapters(std::span<const int32_t> ids, std::span<const int64_t> lengths);

  std::span<const int32_t> token_ids() const { return token_ids_; }  // of each row
  std::span<const LoRASegment> segments() const { return segments_; }
  int64_t token_count() const { return static_cast<int64_t>(token_ids_.size()); }
  int64_t max_length() const { return max_length_; }  // of the segments
  bool no_lora() const { return no_lora_; }           // all rows are the base's

 private:
  std::vector<int32_t> token_ids_;
  std::vector<LoRASegment> segments_;
  int64_t max_length_ = 0;
  bool no_lora_ = true;
};

}  // namespace choral::lora
