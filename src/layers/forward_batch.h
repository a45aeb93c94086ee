// One step's flat batch: the rows of all sequences one after another, built once by the model runner and read by every layer.
// Spans live until the step ends.
#pragma once

#include <cstdint>
#include <span>

#include "lora/plan/punica_wrapper.h"
#include "platform/ops/op_table.h"

namespace choral::layers {

struct ForwardBatch {
  platform::IndexArray<int32_t> token_ids;    // [tokens]
  platform::IndexArray<int32_t> positions;    // [tokens], of each row in its sequence
  platform::IndexArray<int64_t> kv_slots;     // [tokens], where the row's key and value go
  platform::SequenceBatch sequences;          // rows of each sequence and its block table
  const lora::PunicaWrapper* lora = nullptr;  // the step's adapters; null: the base alone

  int64_t tokens() const { return token_ids.size(); }
};

}  // namespace choral::layers
