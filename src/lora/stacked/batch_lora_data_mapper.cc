#include "lora/stacked/batch_lora_data_mapper.h"

#include <algorithm>

namespace choral::lora {

void BatchLoRADataMapper::reserve(int64_t max_rows) {
  for (auto* values : {&starts_, &lengths_, &indices_}) values->reserve(max_rows);
}

void BatchLoRADataMapper::map_rows(std::span<const int32_t> indices) {
  for (auto* values : {&starts_, &lengths_, &indices_}) values->clear();
  row_count_ = std::ssize(indices);
  max_length_ = 0;
  no_lora_ = true;
  for (size_t begin = 0; begin < indices.size();) {
    size_t end = begin + 1;
    while (end < indices.size() && indices[end] == indices[begin]) ++end;
    starts_.push_back(static_cast<int32_t>(begin));
    lengths_.push_back(static_cast<int32_t>(end - begin));
    indices_.push_back(indices[begin]);
    max_length_ = std::max(max_length_, static_cast<int64_t>(end - begin));
    no_lora_ = no_lora_ && indices[begin] < 0;
    begin = end;
  }
}

}  // namespace choral::lora
