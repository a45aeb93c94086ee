// Which adapter each row of a step has, as runs of rows. An *id* is the adapter's own number; an *index* is the small one that
// stands for it during a step. 0 is the base in both. The kernels' convention is another, -1 for the base: BatchLoRADataMapper
// converts. One object is reused for every step: after reserve(), clear() and refilling allocate nothing. A plain record; not
// thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "lora/adapter_ids.h"

namespace choral::lora {

// Consecutive rows of one index.
struct LoRARun {
  int64_t start = 0;
  int64_t length = 0;
  int32_t index = 0;
};

// Rows whose runs ascend and share none; rows in no run are the base's.
struct LoRARows {
  std::vector<LoRARun> runs;
  int64_t count = 0;
};

struct LoRAMapping {
  LoRARows index_mapping;                              // the step's rows
  LoRARows prompt_mapping;                             // rows that were gathered from them
  std::vector<AdapterKey> lora_index_to_id{kBaseKey};  // the step's adapters, each once
  bool is_prefill = false;                             // some row belongs to a prompt

  void reserve(int64_t max_tokens, int64_t max_sequences);
  void clear();  // keeps the room

  // The index of an adapter of the step; 0 when it is none.
  int32_t get_index_for_lora_id(AdapterKey lora_id) const;
  // The next index, for an adapter that has none yet.
  int32_t add_adapter(AdapterKey lora_id);
};

}  // namespace choral::lora
