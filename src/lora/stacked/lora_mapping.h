// Which adapter each row of a step has. An *id* is the adapter's own number. An *index* is the small number that stands for it
// during a step; rows carry indices, and lora_index_mapping leads from ids to indices. 0 is the base in both. Kernels use -1 for
// the base: only create_batch_indices() converts.
// One object is reused for every step: after reserve(), clear() and refilling allocate nothing. A plain record; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "lora/adapter_ids.h"

namespace choral::lora {

class LoRAMapping {
 public:
  struct Entry {
    AdapterKey lora_id;
    int32_t index = 0;
    bool operator==(const Entry&) const = default;
  };

  std::vector<int32_t> index_mapping;     // index of each token's row
  std::vector<int32_t> prompt_mapping;    // index of each row that was gathered from them: those whose logits are wanted
  std::vector<Entry> lora_index_mapping;  // the step's adapters, each once: id -> index
  bool is_prefill = false;                // some row belongs to a prompt

  void reserve(int64_t max_tokens, int64_t max_sequences);
  void clear();  // keeps the room

  // The adapter is one of the step's; again is fine.
  void add_adapter(AdapterKey lora_id, int32_t index);
  void add_tokens(int32_t index, int64_t count) { index_mapping.insert(index_mapping.end(), count, index); }
  void add_prompts(int32_t index, int64_t count) { prompt_mapping.insert(prompt_mapping.end(), count, index); }

  // Checks the whole record. invalid_argument: ids or indices below 1, two indices of one id, two ids of one index, rows of an
  // index that has no id.
  Status validate() const;

  // The adapter's id; 0 for the base and for an index that has none.
  AdapterKey get_lora_id_for_index(int32_t index) const;
  // The index of an adapter of the step; 0 when it is none.
  int32_t get_index_for_lora_id(AdapterKey lora_id) const;

  // The kernels' index of each row of `mapping`: the position of its adapter in stacks, stack_position[index], -1 = none.
  static void create_batch_indices(std::span<const int32_t> mapping, std::span<const int32_t> stack_position,
                                   std::vector<int32_t>& indices);
};

}  // namespace choral::lora
