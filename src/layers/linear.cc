#include "layers/linear.h"

#include <numeric>

namespace choral::layers {
namespace {

quant::LinearShape single_shape(const LinearSpec& spec) {
  return {.in = spec.in, .out = {spec.out}, .shard_names = {spec.prefix}, .bias = spec.bias};
}

quant::LinearShape merged_shape(const MergedColumnParallelLinear::Spec& spec) {
  if (spec.merged) {
    const int64_t out = std::accumulate(spec.out.begin(), spec.out.end(), int64_t{0});
    return single_shape({.prefix = spec.prefix, .in = spec.in, .out = out, .bias = spec.bias});
  }
  quant::LinearShape shape{.in = spec.in, .out = spec.out, .shard_names = {}, .bias = spec.bias};
  const std::string parent = spec.prefix.substr(0, spec.prefix.rfind('.') + 1);
  for (const auto& member : spec.members) shape.shard_names.push_back(parent + member);
  return shape;
}

}  // namespace

LinearBase::LinearBase(Builder& builder, quant::LayerKind kind, std::string prefix, quant::LinearShape shape)
    : prefix_(std::move(prefix)), shape_(std::move(shape)) {
  auto method = builder.quant_config.get_quant_method(kind, shape_);
  if (!method.ok()) {
    builder.fail(std::move(method).status().while_(prefix_));
    return;
  }
  quant_method_ = std::move(*method);
  quant_method_->create_weights(shape_, parameters_);
  builder.modules.push_back(this);
  const bool adaptable = kind == quant::LayerKind::kLinear || kind == quant::LayerKind::kRouter;
  if (adaptable) lora_target_ = builder.add_lora_target(lora_target(lora::TargetKind::kLinear, prefix_));
}

lora::LoRATarget LinearBase::lora_target(lora::TargetKind kind, std::string name) const {
  lora::LoRATarget target{.kind = kind, .name = std::move(name), .in = shape_.in};
  for (size_t i = 0; i < shape_.out.size(); ++i) {
    target.members.push_back({shape_.out.size() == 1 ? target.name : shape_.shard_names[i], shape_.out[i]});
  }
  target.base_row = [this](int64_t row, std::span<float> out) { return quant_method_->read_row(row, out); };
  target.base_bias = [this] { return quant_method_->bias(); };
  return target;
}

Status LinearBase::load_weights(quant::WeightSource& source) { return parameters_.weight_loader(source); }

Status LinearBase::process_weights_after_loading(const platform::Context& ctx, quant::WeightSource& source) {
  CHORAL_RETURN_IF_ERROR(quant_method_->process_weights_after_loading(ctx, source.request(), shape_, parameters_));
  parameters_.release(source);
  return {};
}

void LinearBase::apply(const platform::Context& ctx, const Input& input, const kernels::Epilogue& epilogue, MatrixView<float> y,
                       const lora::PunicaWrapper* lora) const {
  CHORAL_CHECK(input.x.cols == in_features() && y.cols == out_features() && input.x.rows == y.rows,
               "shapes are fixed when the batch is built");
  const auto multiply = [&](const kernels::Epilogue& whole, MatrixView<float> to) {
    if (input.quantised.empty()) return quant_method_->apply(ctx, input.x, whole, to);
    quant_method_->apply_quantised(ctx, input.quantised, whole, to);
  };
  if (lora == nullptr) return multiply(epilogue, y);
  lora->add_lora_linear(ctx, lora_target_, input.x, epilogue.accumulate, y, multiply);
}

void LinearBase::forward_rows(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                              const lora::PunicaWrapper* lora, std::span<const lora::RowGroup> groups) const {
  const auto multiply = [&](const kernels::Epilogue& whole, MatrixView<float> to) { quant_method_->apply(ctx, x, whole, to); };
  if (groups.empty()) return multiply({}, y);
  lora->add_lora_linear(ctx, lora_target_, groups, x, /*add=*/false, y, multiply);
}

ReplicatedLinear::ReplicatedLinear(Builder& builder, quant::LayerKind kind, const Spec& spec)
    : LinearBase(builder, kind, spec.prefix, single_shape(spec)) {}

ColumnParallelLinear::ColumnParallelLinear(Builder& builder, const Spec& spec)
    : LinearBase(builder, quant::LayerKind::kLinear, spec.prefix, single_shape(spec)) {}

RowParallelLinear::RowParallelLinear(Builder& builder, const Spec& spec)
    : LinearBase(builder, quant::LayerKind::kLinear, spec.prefix, single_shape(spec)) {}

MergedColumnParallelLinear::MergedColumnParallelLinear(Builder& builder, const Spec& spec)
    : LinearBase(builder, quant::LayerKind::kLinear, spec.prefix, merged_shape(spec)) {}

QKVParallelLinear::QKVParallelLinear(Builder& builder, const Spec& spec)
    : MergedColumnParallelLinear(
          builder, {.prefix = spec.prefix,
                    .in = spec.in,
                    .members = {"q_proj", "k_proj", "v_proj"},
                    .out = {spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.kv_heads * spec.head_dim},
                    .bias = spec.bias,
                    .merged = spec.merged}) {}

}  // namespace choral::layers
