#include "layers/linear.h"

#include <algorithm>
#include <numeric>

#include "platform/ops/op_profile.h"

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

void LinearBase::count_product(platform::OpProfile& profile, int64_t rows) const {
  profile.add_product(static_cast<double>(weight_bytes()), 2.0 * static_cast<double>(rows * in_features() * out_features()));
}

void LinearBase::apply(const platform::Context& ctx, const Input& input, const kernels::Epilogue& epilogue, MatrixView<float> y,
                       const lora::PunicaWrapper* lora) const {
  CHORAL_CHECK(input.x.cols == in_features() && y.cols == out_features() && input.x.rows == y.rows,
               "shapes are fixed when the batch is built");
  if (ctx.profile != nullptr) count_product(*ctx.profile, input.x.rows);
  const auto multiply = [&](const kernels::Epilogue& whole, MatrixView<float> to) {
    if (input.quantised.empty()) return quant_method_->apply(ctx, input.x, whole, to);
    quant_method_->apply_quantised(ctx, input.quantised, whole, to);
  };
  if (lora == nullptr) return multiply(epilogue, y);
  lora->add_lora_linear(ctx, lora_target_, input.x, epilogue.accumulate, y, multiply);
}

void LinearBase::forward_rows(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                              const lora::PunicaWrapper* lora, std::span<const lora::RowGroup> groups) const {
  if (ctx.profile != nullptr) count_product(*ctx.profile, x.rows);
  const auto multiply = [&](const kernels::Epilogue& whole, MatrixView<float> to) { quant_method_->apply(ctx, x, whole, to); };
  if (groups.empty()) return multiply({}, y);
  lora->add_lora_linear(ctx, lora_target_, groups, x, /*add=*/false, y, multiply);
}

void LinearBase::multiply_grouped(const platform::Context& ctx, const platform::OpOf<platform::ops::GroupedMatmul>& matmul,
                                  std::span<const Rows> layers, MatrixView<const float> x, const kernels::Epilogue& epilogue,
                                  MatrixView<float> y) {
  const Arena::Mark mark(ctx.kernel.scratch);
  const auto for_each_product = [&](quant::LinearMethod::TakeProduct take, auto otherwise) {
    for (const auto& [layer, begin, count, groups] : layers) {
      kernels::Epilogue own = epilogue;
      own.row += begin;
      const auto from = x.sub_rows(begin, count);
      const auto to = y.sub_rows(begin, count);
      if (!layer->quant_method_->for_each_product(from, own, to, take)) otherwise(*layer->quant_method_, from, own, to);
    }
  };
  size_t most = 0;
  for_each_product([&](const kernels::GroupProduct&) { ++most; }, [](const auto&...) {});
  const auto products = ctx.kernel.scratch.make<kernels::GroupProduct>(most);
  auto next = products.begin();
  for_each_product([&](const kernels::GroupProduct& product) { *next++ = product; },
                   [&](const quant::LinearMethod& method, const auto&... arguments) { method.apply(ctx, arguments...); });
  matmul(ctx, products);
}

void LinearBase::forward_grouped(const platform::Context& ctx, const platform::OpOf<platform::ops::GroupedMatmul>& matmul,
                                 std::span<const Rows> layers, MatrixView<const float> x, MatrixView<float> y,
                                 const lora::PunicaWrapper* lora) {
  const bool apart = lora != nullptr && lora->on_device();  // it adds to one layer's product at a time
  if (apart || !std::all_of(layers.begin(), layers.end(), [](const Rows& rows) { return rows.layer->may_group(); })) {
    for (const auto& [layer, begin, count, groups] : layers) {
      layer->forward_rows(ctx, x.sub_rows(begin, count), y.sub_rows(begin, count), lora, groups);
    }
    return;
  }
  if (ctx.profile != nullptr) {
    for (const Rows& rows : layers) rows.layer->count_product(*ctx.profile, rows.count);
  }
  if (lora == nullptr) return multiply_grouped(ctx, matmul, layers, x, {}, y);
  const auto targets = ctx.kernel.scratch.make<lora::PunicaWrapper::TargetRows>(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) targets[i] = {layers[i].layer->lora_target_, layers[i].begin, layers[i].groups};
  lora->add_lora_grouped(ctx, targets, x, y, [&](const kernels::Epilogue& whole, MatrixView<float> to) {
    multiply_grouped(ctx, matmul, layers, x, whole, to);
  });
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
