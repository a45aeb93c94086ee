#include "lora/stacked/lora_batch_processor.h"

#include <algorithm>
#include <cstring>

#include "base/checked_math.h"
#include "lora/stacked/batch_lora_data_mapper.h"

namespace choral::lora {
namespace {

// The adapters that the batch names, ascending; those that leave the module alone are left out.
Result<std::vector<ActiveLoRA>> named_adapters(std::span<const int32_t> lora_ids, std::span<const ActiveLoRA> active) {
  std::vector<ActiveLoRA> known(active.begin(), active.end());
  std::sort(known.begin(), known.end(), [](const ActiveLoRA& a, const ActiveLoRA& b) { return a.id < b.id; });
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i].id < 1) return invalid_argument("an active adapter has id {}; ids are 1 and up", known[i].id);
    if (i > 0 && known[i].id == known[i - 1].id) return invalid_argument("adapter {} is active twice", known[i].id);
  }
  std::vector<bool> named(known.size());
  for (size_t i = 0; i < lora_ids.size(); ++i) {
    if (lora_ids[i] == 0) continue;
    const auto place =
        std::lower_bound(known.begin(), known.end(), lora_ids[i], [](const ActiveLoRA& a, int32_t id) { return a.id < id; });
    if (place == known.end() || place->id != lora_ids[i]) {
      return not_found("sequence {} wants adapter {}, which is not active", i, lora_ids[i]);
    }
    named[static_cast<size_t>(place - known.begin())] = true;
  }
  std::vector<ActiveLoRA> out;
  for (size_t i = 0; i < known.size(); ++i) {
    if (named[i] && known[i].weights != nullptr) out.push_back(known[i]);
  }
  return out;
}

Status check(const ActiveLoRA& adapter, const ActiveLoRA& first) {
  const LoRALayerWeights& w = *adapter.weights;
  const auto refused = [&](const char* what) {
    return unsupported("adapter {}, module '{}': {} cannot be stacked; run it through the model", adapter.id, w.module_name,
                       what);
  };
  if (w.is_dora()) return refused("DoRA");
  if (!w.bias.empty()) return refused("a bias");
  if (w.is_embedding) return refused("an embedding");
  if (w.lora_a.view.shape.rank() != 2 || w.lora_b.view.shape.rank() != 2 || w.lora_a.view.shape[0] != w.rank ||
      w.lora_b.view.shape[1] != w.rank || w.rank < 1) {
    return invalid_argument("adapter {}, module '{}': A {} and B {} are not [r, in] and [out, r] of rank {}", adapter.id,
                            w.module_name, w.lora_a.view.shape.to_string(), w.lora_b.view.shape.to_string(), w.rank);
  }
  if (w.input_dim() != first.weights->input_dim() || w.output_dim() != first.weights->output_dim()) {
    return invalid_argument("module '{}': adapter {} has {} inputs and {} outputs, adapter {} has {} and {}", w.module_name,
                            adapter.id, w.input_dim(), w.output_dim(), first.id, first.weights->input_dim(),
                            first.weights->output_dim());
  }
  return {};
}

// Zero-filled [count, rows, cols].
Result<Tensor> make_stack(size_t count, int64_t rows, int64_t cols) {
  const auto matrix = checked_mul(static_cast<uint64_t>(rows), static_cast<uint64_t>(cols));
  const auto floats = matrix ? checked_mul(*matrix, count) : std::nullopt;
  const auto bytes = floats ? checked_mul(*floats, sizeof(float)) : std::nullopt;
  if (!bytes || *bytes > static_cast<uint64_t>(INT64_MAX)) {
    return too_large("a stack of {} adapters of {} x {} does not fit into memory", count, rows, cols);
  }
  return Tensor::allocate(DType::kF32, {static_cast<int64_t>(count), rows, cols});
}

Status fill_stacks(std::span<const ActiveLoRA> adapters, LoRABatch& batch) {
  for (const ActiveLoRA& adapter : adapters) {
    CHORAL_RETURN_IF_ERROR(check(adapter, adapters.front()));
    batch.lora_ids.push_back(adapter.id);
    batch.ranks.push_back(adapter.weights->rank);
    batch.scalings.push_back(adapter.weights->scaling);
    batch.max_rank = std::max(batch.max_rank, adapter.weights->rank);
  }
  const int64_t in = adapters.front().weights->input_dim(), out = adapters.front().weights->output_dim();
  CHORAL_TRY(batch.a_stack, make_stack(adapters.size(), batch.max_rank, in));
  CHORAL_TRY(batch.b_stack, make_stack(adapters.size(), out, batch.max_rank));
  for (size_t i = 0; i < adapters.size(); ++i) {
    const LoRALayerWeights& w = *adapters[i].weights;
    CHORAL_TRY(const Tensor a, to_float_tensor(w.lora_a.view));
    CHORAL_TRY(const Tensor b, to_float_tensor(w.lora_b.view));
    float* const a_to = batch.a_stack.as<float>().data() + static_cast<int64_t>(i) * batch.max_rank * in;
    std::memcpy(a_to, a.as<float>().data(), static_cast<size_t>(w.rank * in) * sizeof(float));
    float* const b_to = batch.b_stack.as<float>().data() + static_cast<int64_t>(i) * out * batch.max_rank;
    for (int64_t o = 0; o < out; ++o) {
      std::memcpy(b_to + o * batch.max_rank, b.as<float>().data() + o * w.rank, static_cast<size_t>(w.rank) * sizeof(float));
    }
  }
  return {};
}

}  // namespace

TensorView LoRABatch::view_of(std::span<const int32_t> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), DType::kI32, {static_cast<int64_t>(values.size())}, kCpuDevice};
}

void LoRABatch::scale_middle(MatrixView<float> middle) const {
  for (int64_t row = 0; row < middle.rows; ++row) {
    const int32_t index = token_indices[static_cast<size_t>(row)];
    if (index < 0) continue;
    for (float& value : middle.row_span(row)) value *= scalings[static_cast<size_t>(index)];
  }
}

Result<LoRABatch> LoRABatchProcessor::prepare_batch(std::span<const int32_t> lora_ids, std::span<const int64_t> lengths,
                                                    std::span<const ActiveLoRA> active) {
  BatchLoRADataMapper mapper;
  CHORAL_RETURN_IF_ERROR(mapper.map_sequence_to_adapters(lora_ids, lengths));
  CHORAL_TRY(const std::vector<ActiveLoRA> adapters, named_adapters(lora_ids, active));
  LoRABatch batch;
  batch.no_lora = adapters.empty();
  batch.token_count = mapper.token_count();
  if (!adapters.empty()) {
    CHORAL_RETURN_IF_ERROR(fill_stacks(adapters, batch));
  }
  const auto index_of = [&](int32_t id) {
    const auto place = std::lower_bound(batch.lora_ids.begin(), batch.lora_ids.end(), id);
    return place == batch.lora_ids.end() || *place != id ? -1 : static_cast<int32_t>(place - batch.lora_ids.begin());
  };
  batch.token_indices.reserve(static_cast<size_t>(batch.token_count));
  for (size_t i = 0; i < lora_ids.size(); ++i) {
    const int32_t index = index_of(lora_ids[i]);
    batch.sequence_indices.push_back(index);
    batch.sequence_starts.push_back(static_cast<int32_t>(batch.token_indices.size()));
    batch.sequence_lengths.push_back(static_cast<int32_t>(lengths[i]));
    batch.max_sequence_length = std::max(batch.max_sequence_length, lengths[i]);
    batch.token_indices.insert(batch.token_indices.end(), static_cast<size_t>(lengths[i]), index);
  }
  return batch;
}

}  // namespace choral::lora
