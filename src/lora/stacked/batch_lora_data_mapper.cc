#include "lora/stacked/batch_lora_data_mapper.h"

#include <algorithm>

#include "base/check.h"

namespace choral::lora {

void BatchLoRADataMapper::reserve(int64_t max_rows) {
  for (auto* values : {&starts_, &lengths_, &indices_, &row_indices_}) values->reserve(max_rows);
}

void BatchLoRADataMapper::map_sequence_to_adapters(const LoRARows& rows, std::span<const int32_t> stack_position) {
  for (auto* values : {&starts_, &lengths_, &indices_}) values->clear();
  int64_t end = 0;
  for (const LoRARun& run : rows.runs) {
    append(run.start - end, -1);
    append(run.length, run.index == 0 ? -1 : stack_position[run.index]);
    end = run.start + run.length;
  }
  append(rows.count - end, -1);
  max_length_ = lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end());
  no_lora_ = std::all_of(indices_.begin(), indices_.end(), [](int32_t position) { return position < 0; });
  create_batch_indices();
}

void BatchLoRADataMapper::append(int64_t length, int32_t position) {
  CHORAL_DCHECK(length >= 0, "runs ascend and share no row");
  if (length == 0) return;
  const auto rows = static_cast<int32_t>(length);
  if (!indices_.empty() && indices_.back() == position) {
    lengths_.back() += rows;
    return;
  }
  starts_.push_back(starts_.empty() ? 0 : starts_.back() + lengths_.back());
  lengths_.push_back(rows);
  indices_.push_back(position);
}

void BatchLoRADataMapper::create_batch_indices() {
  row_indices_.clear();
  for (size_t i = 0; i < indices_.size(); ++i) row_indices_.insert(row_indices_.end(), lengths_[i], indices_[i]);
}

}  // namespace choral::lora
