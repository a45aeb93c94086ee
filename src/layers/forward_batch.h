// One step's flat batch: the rows of all sequences one after another, built once by the model runner and read by every layer.
// Spans live until the step ends.
#pragma once

#include <cstdint>
#include <span>

#include "lora/plan/punica_wrapper.h"
#include "platform/ops/op_table.h"

namespace choral::layers {

// The rows in the cache of one group of layers.
struct KvRows {
  platform::IndexArray<int64_t> slots;  // [tokens], where the row's key and value go
  platform::SequenceBatch sequences;    // rows of each sequence and its block table
};

struct ForwardBatch {
  platform::IndexArray<int32_t> token_ids;             // [tokens]
  platform::IndexArray<int32_t> positions;             // [tokens], of each row in its sequence
  std::span<const KvRows> kv_groups;                   // of each group of layers
  std::span<const kernels::StateRun> state_runs = {};  // which slots the rows go through, where layers keep states
  const lora::PunicaWrapper* lora = nullptr;           // the step's adapters; null: the base alone

  int64_t tokens() const { return token_ids.size(); }
};

}  // namespace choral::layers
