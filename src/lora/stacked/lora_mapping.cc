#include "lora/stacked/lora_mapping.h"

#include <algorithm>

#include "base/check.h"

namespace choral::lora {

void LoRAMapping::reserve(int64_t max_tokens, int64_t max_sequences) {
  index_mapping.reserve(max_tokens);
  prompt_mapping.reserve(max_tokens);         // prompt logprobs want every row's logits
  lora_index_mapping.reserve(max_sequences);  // a sequence has one adapter
}

void LoRAMapping::clear() {
  index_mapping.clear();
  prompt_mapping.clear();
  lora_index_mapping.clear();
  is_prefill = false;
}

void LoRAMapping::add_adapter(AdapterKey lora_id, int32_t index) {
  const Entry entry{lora_id, index};
  if (std::find(lora_index_mapping.begin(), lora_index_mapping.end(), entry) == lora_index_mapping.end()) {
    lora_index_mapping.push_back(entry);
  }
}

Status LoRAMapping::validate() const {
  for (auto entry = lora_index_mapping.begin(); entry != lora_index_mapping.end(); ++entry) {
    if (entry->lora_id.value() < 1 || entry->index < 1) {
      return invalid_argument("adapter {} has index {}; both begin at 1, 0 is the base", entry->lora_id.value(), entry->index);
    }
    const auto same = std::find_if(lora_index_mapping.begin(), entry, [&](const Entry& other) {
      return other.lora_id == entry->lora_id || other.index == entry->index;
    });
    if (same != entry) {
      return invalid_argument("adapter {} has index {}, and adapter {} has index {}", same->lora_id.value(), same->index,
                              entry->lora_id.value(), entry->index);
    }
  }
  const auto check_rows = [&](const char* what, std::span<const int32_t> rows) -> Status {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] == 0 || get_lora_id_for_index(rows[i]) != kBaseKey) continue;
      return invalid_argument("{}[{}] is {}, which is no adapter's index", what, i, rows[i]);
    }
    return {};
  };
  CHORAL_RETURN_IF_ERROR(check_rows("index_mapping", index_mapping));
  CHORAL_RETURN_IF_ERROR(check_rows("prompt_mapping", prompt_mapping));
  return {};
}

AdapterKey LoRAMapping::get_lora_id_for_index(int32_t index) const {
  const auto found = std::find_if(lora_index_mapping.begin(), lora_index_mapping.end(),
                                  [index](const Entry& entry) { return entry.index == index; });
  return found == lora_index_mapping.end() ? kBaseKey : found->lora_id;
}

int32_t LoRAMapping::get_index_for_lora_id(AdapterKey lora_id) const {
  const auto found = std::find_if(lora_index_mapping.begin(), lora_index_mapping.end(),
                                  [lora_id](const Entry& entry) { return entry.lora_id == lora_id; });
  return found == lora_index_mapping.end() ? 0 : found->index;
}

void LoRAMapping::create_batch_indices(std::span<const int32_t> mapping, std::span<const int32_t> stack_position,
                                       std::vector<int32_t>& indices) {
  indices.resize(mapping.size());
  std::transform(mapping.begin(), mapping.end(), indices.begin(),
                 [&](int32_t index) { return index == 0 ? -1 : stack_position[index]; });
}

}  // namespace choral::lora
