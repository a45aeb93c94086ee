#include "lora/plan/lora_mapping.h"

#include <algorithm>

#include "base/check.h"

namespace choral::lora {
namespace {

Status check_rows(const char* what, std::span<const int32_t> slots, std::span<const int32_t> ids) {
  for (size_t i = 0; i < slots.size(); ++i) {
    const int32_t slot = slots[i];
    if (slot < 0 || static_cast<size_t>(slot) >= ids.size()) {
      return invalid_argument("{}[{}] is slot {}, there are slots 0 to {}", what, i, slot, ids.size() - 1);
    }
    if (slot != 0 && ids[static_cast<size_t>(slot)] == 0) {
      return invalid_argument("{}[{}] is slot {}, which has no adapter", what, i, slot);
    }
  }
  return {};
}

}  // namespace

void LoRAMapping::reserve(int64_t max_tokens, int64_t max_sequences, int64_t max_slots) {
  index_mapping.reserve(static_cast<size_t>(max_tokens));
  prompt_mapping.reserve(static_cast<size_t>(max_tokens));  // prompt logprobs want every row's logits
  lora_index_mapping.reserve(static_cast<size_t>(max_slots));
  // A sequence has one adapter.
  lora_ids_.reserve(static_cast<size_t>(max_sequences));
  prompt_ids_.reserve(static_cast<size_t>(max_sequences));
}

void LoRAMapping::clear() {
  index_mapping.clear();
  prompt_mapping.clear();
  lora_index_mapping.clear();
  is_prefill = false;
  lora_ids_.clear();
  prompt_ids_.clear();
  max_id_ = 0;
}

Status LoRAMapping::validate() const {
  const auto& ids = lora_index_mapping;
  if (ids.empty() || ids[0] != 0) {
    return invalid_argument("slot 0 is the base: lora_index_mapping must begin with 0{}",
                            ids.empty() ? ", it is empty" : fmt::format(", not {}", ids[0]));
  }
  for (size_t slot = 1; slot < ids.size(); ++slot) {
    if (ids[slot] < 0) return invalid_argument("slot {} has adapter id {}; ids are 1 and up, 0 is a free slot", slot, ids[slot]);
    const auto same = std::find(ids.begin() + 1, ids.begin() + static_cast<std::ptrdiff_t>(slot), ids[slot]);
    if (ids[slot] != 0 && same != ids.begin() + static_cast<std::ptrdiff_t>(slot)) {
      return invalid_argument("adapter {} has slots {} and {}", ids[slot], same - ids.begin(), slot);
    }
  }
  CHORAL_RETURN_IF_ERROR(check_rows("index_mapping", index_mapping, ids));
  CHORAL_RETURN_IF_ERROR(check_rows("prompt_mapping", prompt_mapping, ids));
  if (prompt_mapping.size() > index_mapping.size()) {
    return invalid_argument("{} rows of logits are wanted, but there are {} tokens", prompt_mapping.size(), index_mapping.size());
  }
  std::vector<bool> has_token(ids.size());
  for (const int32_t slot : index_mapping) has_token[static_cast<size_t>(slot)] = true;
  for (size_t i = 0; i < prompt_mapping.size(); ++i) {
    if (!has_token[static_cast<size_t>(prompt_mapping[i])]) {
      return invalid_argument("prompt_mapping[{}] is slot {}, which no token has", i, prompt_mapping[i]);
    }
  }
  return {};
}

int32_t LoRAMapping::get_lora_id_for_index(int32_t slot) const {
  if (slot == 0) return 0;
  CHORAL_CHECK(slot > 0 && static_cast<size_t>(slot) < lora_index_mapping.size(), "a row's slot is not in lora_index_mapping");
  return lora_index_mapping[static_cast<size_t>(slot)];
}

void LoRAMapping::collect_ids() {
  const auto collect = [this](std::span<const int32_t> slots, std::vector<int32_t>& ids) {
    ids.clear();
    int32_t last_slot = 0;  // rows of one adapter mostly lie together
    for (const int32_t slot : slots) {
      if (slot == last_slot) continue;
      last_slot = slot;
      const int32_t id = get_lora_id_for_index(slot);
      if (id == 0) continue;
      const auto place = std::lower_bound(ids.begin(), ids.end(), id);
      if (place == ids.end() || *place != id) ids.insert(place, id);
    }
  };
  collect(index_mapping, lora_ids_);
  collect(prompt_mapping, prompt_ids_);
  max_id_ = lora_ids_.empty() ? 0 : lora_ids_.back();
}

void LoRAMapping::create_batch_indices(std::vector<int32_t>& indices) const {
  indices.resize(index_mapping.size());
  std::transform(index_mapping.begin(), index_mapping.end(), indices.begin(), [](int32_t slot) { return slot - 1; });
}

std::vector<int32_t> LoRAMapping::create_batch_indices() const {
  std::vector<int32_t> indices;
  create_batch_indices(indices);
  return indices;
}

}  // namespace choral::lora
