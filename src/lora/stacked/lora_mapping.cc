#include "lora/stacked/lora_mapping.h"

#include <algorithm>

namespace choral::lora {

void LoRAMapping::reserve(int64_t max_tokens, int64_t max_sequences) {
  index_mapping.runs.reserve(max_sequences);  // a sequence has one adapter
  prompt_mapping.runs.reserve(max_tokens);    // experts gather rows in any order
  lora_index_to_id.reserve(max_sequences + 1);
}

void LoRAMapping::clear() {
  for (LoRARows* rows : {&index_mapping, &prompt_mapping}) {
    rows->runs.clear();
    rows->count = 0;
  }
  lora_index_to_id.assign(1, kBaseKey);
  is_prefill = false;
}

int32_t LoRAMapping::get_index_for_lora_id(AdapterKey lora_id) const {
  const auto found = std::find(lora_index_to_id.begin(), lora_index_to_id.end(), lora_id);
  return found == lora_index_to_id.end() ? 0 : static_cast<int32_t>(found - lora_index_to_id.begin());
}

int32_t LoRAMapping::add_adapter(AdapterKey lora_id) {
  lora_index_to_id.push_back(lora_id);
  return static_cast<int32_t>(lora_index_to_id.size()) - 1;
}

}  // namespace choral::lora
