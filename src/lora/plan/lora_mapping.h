// Which adapter each row of a step has: the words in which the engine and the adapters' plan speak of it. A *slot* is a small
// index that stands for an adapter during a step, slot 0 for the base; an *id* is the number of its AdapterKey, 0 for the base.
// Rows carry slots. The kernels' convention is another, -1 for the base: create_batch_indices() converts, and nobody else does.
// One object is reused for every step: after reserve(), clear() and refilling allocate nothing. A plain record; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace choral::lora {

class LoRAMapping {
 public:
  std::vector<int32_t> index_mapping;       // slot of each token's row
  std::vector<int32_t> prompt_mapping;      // slot of each row whose logits are wanted, in the rows' order
  std::vector<int32_t> lora_index_mapping;  // id of each slot; [0] = 0, the base; 0 elsewhere = a free slot
  bool is_prefill = false;                  // some row belongs to a prompt

  void reserve(int64_t max_tokens, int64_t max_sequences, int64_t max_slots = 0);
  void clear();  // keeps the room

  void add_tokens(int32_t slot, int64_t count) { index_mapping.insert(index_mapping.end(), static_cast<size_t>(count), slot); }
  void add_prompt(int32_t slot) { prompt_mapping.push_back(slot); }

  // The whole record in one: ids out of range, negative numbers, slot 0 that is not the base, two slots of one id, rows of a free
  // slot, more prompt rows than tokens, or a prompt row whose slot no token has, are invalid_argument.
  Status validate() const;

  // The adapter's id of a slot; 0 for the base. `slot` must be in range.
  int32_t get_lora_id_for_index(int32_t slot) const;
  int32_t lora_id_of_token(int64_t row) const { return get_lora_id_for_index(index_mapping[static_cast<size_t>(row)]); }

  // What the rows name, found by collect_ids() once they are all there: adapters' ids, ascending, each once, without the base.
  void collect_ids();
  std::span<const int32_t> lora_ids() const { return lora_ids_; }           // of tokens
  std::span<const int32_t> prompt_lora_ids() const { return prompt_ids_; }  // of prompt rows
  int32_t max_id() const { return max_id_; }                                // 0 = base only

  // The kernels' index of each token: the position of its adapter in stacks [n, …] that hold slot s at s - 1, and -1 for the
  // base.
  void create_batch_indices(std::vector<int32_t>& indices) const;
  std::vector<int32_t> create_batch_indices() const;

 private:
  std::vector<int32_t> lora_ids_, prompt_ids_;
  int32_t max_id_ = 0;
};

}  // namespace choral::lora
