// One step's flat batch: the rows of all sequences one after another, built once by the model runner and read by every layer.
// Spans live until the step ends.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention.h"
#include "lora/punica_wrapper.h"

namespace choral::layers {

struct ForwardBatch {
  std::span<const int32_t> token_ids;                     // [tokens]
  std::span<const int32_t> positions;                     // [tokens], of each row in its sequence
  std::span<const int64_t> kv_slots;                      // [tokens], where the row's key and value go
  std::span<const kernels::AttentionSequence> sequences;  // rows of each sequence and its block table
  const lora::PunicaWrapper* lora = nullptr;              // the step's adapters; null: the base alone

  int64_t tokens() const { return static_cast<int64_t>(token_ids.size()); }
};

}  // namespace choral::layers
