#include "lora/stacked/batch_lora_data_mapper.h"

#include <algorithm>

namespace choral::lora {

void BatchLoRADataMapper::reserve(int64_t max_tokens, int64_t max_sequences) {
  token_ids_.reserve(static_cast<size_t>(max_tokens));
  segments_.reserve(static_cast<size_t>(max_sequences));
}

Status BatchLoRADataMapper::map_sequence_to_adapters(std::span<const int32_t> ids, std::span<const int64_t> lengths) {
  if (ids.size() != lengths.size()) {
    return invalid_argument("{} sequences have an adapter, {} have a length", ids.size(), lengths.size());
  }
  int64_t tokens = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) return invalid_argument("sequence {} has adapter {}; 0 is the base, adapters are 1 and up", i, ids[i]);
    if (lengths[i] < 0) return invalid_argument("sequence {} has {} tokens", i, lengths[i]);
    if (lengths[i] > kMostTokens - tokens) {
      return invalid_argument("sequences 0 to {} have more than {} tokens together, the most of a step", i, kMostTokens);
    }
    tokens += lengths[i];
  }
  token_ids_.clear();
  segments_.clear();
  max_length_ = 0;
  no_lora_ = true;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (lengths[i] == 0) continue;
    if (segments_.empty() || segments_.back().key != AdapterKey{ids[i]})
      segments_.push_back({token_count(), 0, AdapterKey{ids[i]}});
    token_ids_.insert(token_ids_.end(), static_cast<size_t>(lengths[i]), ids[i]);
    segments_.back().length += lengths[i];
    max_length_ = std::max(max_length_, segments_.back().length);
    no_lora_ = no_lora_ && ids[i] == 0;
  }
  return {};
}

}  // namespace choral::lora
