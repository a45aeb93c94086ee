#include "lora/stacked/lora_computation_flow.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/printable.h"
#include "kernels/lora/lora.h"
#include "lora/peft/peft_helper.h"

namespace choral::lora {
namespace {

TensorView view_of(MatrixView<const float> m) {
  return {reinterpret_cast<const std::byte*>(m.data), DType::kF32, {m.rows, m.cols}, kCpuDevice};
}

kernels::MutableTensorView output_of(MatrixView<float> m) {
  return {reinterpret_cast<std::byte*>(m.data), DType::kF32, {m.rows, m.cols}, kCpuDevice};
}

Status check_matrix(std::string_view name, MatrixView<const float> m, int64_t rows, int64_t cols) {
  if (m.rows != rows || m.cols != cols || m.stride != m.cols) {
    return invalid_argument("{} is [{}, {}] with rows {} apart; [{}, {}] without gaps is expected", name, m.rows, m.cols,
                            m.stride, rows, cols);
  }
  return {};
}

Result<LoRAModel> load_one(const LoRARequest& request, std::span<const LoRATarget> targets, const LoRAConfig& config) {
  CHORAL_TRY(const LoRARequest checked, LoRARequest::make(request));
  CHORAL_TRY(const PEFTHelper peft, PEFTHelper::from_local_dir(checked.lora_path));
  CHORAL_RETURN_IF_ERROR(peft.validate_legal(config));
  return LoRAModel::from_local_checkpoint(checked.lora_path, peft, targets,
                                          {.lora_model_id = checked.lora_int_id, .config = config});
}

}  // namespace

Result<LoRAComputationFlow> LoRAComputationFlow::load(std::span<const LoRARequest> requests, std::span<const LoRATarget> targets,
                                                      const LoRAConfig& config, int64_t max_tokens) {
  CHORAL_RETURN_IF_ERROR(config.validate());
  LoRAComputationFlow flow;
  int64_t most_rank = 0;
  for (const LoRARequest& request : requests) {
    const std::string what = fmt::format("loading adapter '{}'", printable(request.lora_name));
    if (request.lora_int_id > std::numeric_limits<int32_t>::max()) {
      return invalid_argument("adapter id {} is above {}", request.lora_int_id, std::numeric_limits<int32_t>::max()).while_(what);
    }
    auto model = load_one(request, targets, config);
    if (!model.ok()) return std::move(model).status().while_(what);
    most_rank = std::max(most_rank, model->rank());
    const auto id = static_cast<int32_t>(request.lora_int_id);
    if (!flow.models_.emplace(id, std::move(*model)).second) return already_exists("two adapters have id {}", id);
  }
  // Results go straight into y: middles are all that is needed.
  CHORAL_TRY(flow.pool_, LoRAMemoryPool::make({.max_tokens = max_tokens, .max_rank = most_rank, .middles = 1, .outputs = 0}));
  return flow;
}

const LoRAModel* LoRAComputationFlow::find(int32_t id) const {
  const auto found = models_.find(id);
  return found == models_.end() ? nullptr : &found->second;
}

Result<LoRABatch> LoRAComputationFlow::prepare(std::string_view module, const LoRASequences& sequences) const {
  std::vector<ActiveLoRA> active;
  for (const auto& [id, model] : models_) {
    const bool wanted = std::find(sequences.lora_ids.begin(), sequences.lora_ids.end(), id) != sequences.lora_ids.end();
    if (wanted && (model.replaced_weights().contains(module) || model.replaced_biases().contains(module))) {
      return unsupported("adapter {} replaces weights of '{}' as a whole; that is no low-rank delta", id, printable(module));
    }
    active.push_back({id, model.get_lora(module)});
  }
  return LoRABatchProcessor::prepare_batch(sequences.lora_ids, sequences.lengths, active);
}

Status LoRAComputationFlow::add_delta(const kernels::Context& ctx, const LoRABatch& batch, MatrixView<const float> x,
                                      MatrixView<float> y) {
  if (batch.no_lora) return {};
  CHORAL_RETURN_IF_ERROR(check_matrix("x", x, batch.token_count, batch.a_stack.shape()[2]));
  CHORAL_RETURN_IF_ERROR(check_matrix("y", y, batch.token_count, batch.b_stack.shape()[1]));
  CHORAL_TRY(const auto lease, pool_->take_middle(batch.token_count, batch.max_rank));
  const MatrixView<float> middle = lease.view();
  const TensorView starts = LoRABatch::view_of(batch.sequence_starts), lengths = LoRABatch::view_of(batch.sequence_lengths),
                   indices = LoRABatch::view_of(batch.sequence_indices);
  // Adapters have scalings of their own, an operation has one: so 1 here, and each row times its own.
  CHORAL_RETURN_IF_ERROR(kernels::sgmv_shrink(ctx, view_of(x), batch.a_stack.view(), output_of(middle), starts, lengths, indices,
                                              batch.batches(), batch.max_sequence_length, batch.token_count, 1.0F));
  batch.scale_middle(middle);
  return kernels::sgmv_expand(ctx, view_of(middle), batch.b_stack.view(), output_of(y), starts, lengths, indices, batch.batches(),
                              batch.max_sequence_length, batch.token_count, true);
}

Status LoRAComputationFlow::forward(const kernels::Context& ctx, std::string_view module, const kernels::PackedMatrix& base,
                                    std::span<const float> bias, const LoRASequences& sequences, MatrixView<const float> x,
                                    MatrixView<float> y) {
  CHORAL_TRY(const LoRABatch batch, prepare(module, sequences));
  CHORAL_RETURN_IF_ERROR(check_matrix("x", x, batch.token_count, base.k()));
  CHORAL_RETURN_IF_ERROR(check_matrix("y", y, batch.token_count, base.n()));
  if (!bias.empty() && static_cast<int64_t>(bias.size()) != base.n()) {
    return invalid_argument("the bias of '{}' has {} values, the module {} outputs", printable(module), bias.size(), base.n());
  }
  base.multiply(ctx, x, {.bias = bias.empty() ? nullptr : bias.data()}, y);
  return add_delta(ctx, batch, x, y);
}

}  // namespace choral::lora
