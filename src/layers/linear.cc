#include "layers/linear.h"

#include <algorithm>
#include <numeric>

#include "kernels/gemm/packed_matrix.h"
#include "platform/gather.h"
#include "platform/ops/op_profile.h"
#include "quant/held_rows.h"

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

MergedColumnParallelLinear::Spec merged_spec(const QKVParallelLinear::Spec& spec) {
  return {.prefix = spec.prefix,
          .in = spec.in,
          .members = {"q_proj", "k_proj", "v_proj"},
          .out = {spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.kv_heads * spec.head_dim},
          .bias = spec.bias,
          .merged = spec.merged,
          .own = spec.own};
}

// These outputs of the layer alone.
quant::LinearShape held_shape(const quant::LinearShape& whole, const std::vector<Share>& own) {
  quant::LinearShape held{.in = whole.in, .out = {}, .shard_names = {}, .bias = whole.bias};
  for (const Share& share : own) quant::hold_rows(whole, share.begin, share.count, held);
  return held;
}

std::vector<lora::HeldColumns> held_columns(const std::vector<Share>& own) {
  std::vector<lora::HeldColumns> held;
  int64_t at = 0;
  for (const Share& share : own) {
    held.push_back({share.begin, at, share.count});
    at += share.count;
  }
  return held;
}

}  // namespace

LinearBase::LinearBase(Builder& builder, quant::LayerKind kind, std::string prefix, const quant::LinearShape& shape,
                       Division division, const std::vector<Share>& own)
    : prefix_(std::move(prefix)), shape_(shape), outputs_(shape.out_total()) {
  for (size_t i = 0; i < shape.out.size(); ++i) {
    members_.push_back({shape.out.size() == 1 ? std::string() : shape.shard_names[i], shape.out[i]});
  }
  auto method = builder.quant_config.get_quant_method(kind, shape);
  if (!method.ok()) {
    builder.fail(std::move(method).status().while_(prefix_));
    return;
  }
  quant_method_ = std::move(*method);
  if (division == Division::kByRows && own.empty() && builder.ranks.count > 1) begins_ = share_out(builder.ranks);
  const auto shares = gathers() ? std::vector{share_of(begins_, builder.ranks.rank)} : own;
  if (!shares.empty()) {
    shape_ = held_shape(shape, shares);
    held_ = held_columns(shares);
  }
  quant_method_->create_weights(shape_, parameters_);
  builder.modules.push_back(this);
  const bool adaptable = kind == quant::LayerKind::kLinear || kind == quant::LayerKind::kRouter;
  if (adaptable) lora_target_ = builder.add_lora_target(lora_target(lora::TargetKind::kLinear, prefix_));
}

bool LinearBase::may_own(const Builder& builder, const quant::LinearShape& shape, const std::vector<Share>& own) {
  const auto method = builder.quant_config.get_quant_method(quant::LayerKind::kLinear, shape);
  return method.ok() && quant::may_hold(**method, held_shape(shape, own));
}

// Of so many outputs, where each rank's begin: in whole panels, and where a scheme's scales are of blocks of rows in whole
// blocks. Empty: they are not divided.
std::vector<int64_t> LinearBase::share_out(const Ranks& ranks) const {
  constexpr int64_t kUnits[] = {kernels::kPanelRows, 128}, kLeastPanels = 2;
  if (outputs_ < kLeastPanels * kernels::kPanelRows * ranks.count) return {};  // not worth a gather
  for (const int64_t unit : kUnits) {
    auto begins = share_begins(outputs_, unit, ranks.count);
    bool divides = true;
    for (int r = 0; r < ranks.count && divides; ++r) {
      const Share share = share_of(begins, r);
      divides = share.count > 0 && quant::may_hold(*quant_method_, held_shape(shape_, {share}));
    }
    if (divides) return begins;
  }
  return {};
}

void LinearBase::gather(const platform::Context& ctx, MatrixView<float> y) const {
  if (gathers()) platform::gather_columns(ctx, y, begins_);
}

lora::LoRATarget LinearBase::lora_target(lora::TargetKind kind, std::string name) const {
  lora::LoRATarget target{.kind = kind, .name = std::move(name), .members = members_, .held = held_, .in = shape_.in};
  if (members_.size() == 1) target.members.front().name = target.name;
  target.base_row = [this](int64_t row, std::span<float> out) { return quant_method_->read_row(row, out); };
  target.base_bias = [this] { return quant_method_->bias(); };
  return target;
}

Status LinearBase::load_weights(quant::WeightSource& source) {
  if (held_.empty()) return parameters_.weight_loader(source);
  return quant::load_held_rows(*quant_method_, shape_, source, parameters_);
}

Status LinearBase::process_weights_after_loading(const platform::Context& ctx, quant::WeightSource& source) {
  CHORAL_RETURN_IF_ERROR(quant::cut_held_rows(ctx, parameters_));
  CHORAL_RETURN_IF_ERROR(
      quant_method_->process_weights_after_loading(ctx, source.request(), shape_, parameters_, source.packed_layers()));
  parameters_.release(source);
  return {};
}

void LinearBase::count_product(platform::OpProfile& profile, int64_t rows) const {
  profile.add_product(static_cast<double>(weight_bytes()), 2.0 * static_cast<double>(rows * shape_.in * shape_.out_total()));
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
  const auto own = own_columns(y);
  if (lora == nullptr) {
    multiply(epilogue, own);
  } else {
    lora->add_lora_linear(ctx, lora_target_, input.x, epilogue.accumulate, {own, held_, outputs_}, multiply);
  }
  gather(ctx, y);
}

void LinearBase::forward_rows(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                              const lora::PunicaWrapper* lora, std::span<const lora::RowGroup> groups) const {
  if (ctx.profile != nullptr) count_product(*ctx.profile, x.rows);
  const auto multiply = [&](const kernels::Epilogue& whole, MatrixView<float> to) { quant_method_->apply(ctx, x, whole, to); };
  const auto own = own_columns(y);
  if (groups.empty()) {
    multiply({}, own);
  } else {
    lora->add_lora_linear(ctx, lora_target_, groups, x, /*add=*/false, {own, held_, outputs_}, multiply);
  }
  gather(ctx, y);
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
  // They are alike, so their rows are gathered as one matrix.
  const LinearBase& like = *layers.front().layer;
  const auto own = like.own_columns(y);
  for (const Rows& rows : layers) {
    CHORAL_CHECK(rows.layer->begins_ == like.begins_, "layers whose products are grouped are divided alike");
  }
  if (lora == nullptr) {
    multiply_grouped(ctx, matmul, layers, x, {}, own);
    return like.gather(ctx, y);
  }
  const auto targets = ctx.kernel.scratch.make<lora::PunicaWrapper::TargetRows>(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) targets[i] = {layers[i].layer->lora_target_, layers[i].begin, layers[i].groups};
  lora->add_lora_grouped(
      ctx, targets, x, {own, like.held_, like.outputs_},
      [&](const kernels::Epilogue& whole, MatrixView<float> to) { multiply_grouped(ctx, matmul, layers, x, whole, to); });
  like.gather(ctx, y);
}

ReplicatedLinear::ReplicatedLinear(Builder& builder, quant::LayerKind kind, const Spec& spec)
    : LinearBase(builder, kind, spec.prefix, single_shape(spec), Division::kNone) {}

ColumnParallelLinear::ColumnParallelLinear(Builder& builder, const Spec& spec)
    : LinearBase(builder, quant::LayerKind::kLinear, spec.prefix, single_shape(spec), Division::kByRows, spec.own) {}

bool ColumnParallelLinear::may_own(const Builder& builder, const Spec& spec) {
  return LinearBase::may_own(builder, single_shape(spec), spec.own);
}

RowParallelLinear::RowParallelLinear(Builder& builder, const Spec& spec)
    : LinearBase(builder, quant::LayerKind::kLinear, spec.prefix, single_shape(spec), Division::kByRows, spec.own) {}

MergedColumnParallelLinear::MergedColumnParallelLinear(Builder& builder, const Spec& spec)
    : LinearBase(builder, quant::LayerKind::kLinear, spec.prefix, merged_shape(spec), Division::kByRows, spec.own) {}

bool MergedColumnParallelLinear::may_own(const Builder& builder, const Spec& spec) {
  return LinearBase::may_own(builder, merged_shape(spec), spec.own);
}

QKVParallelLinear::QKVParallelLinear(Builder& builder, const Spec& spec)
    : MergedColumnParallelLinear(builder, merged_spec(spec)) {}

bool QKVParallelLinear::may_own(const Builder& builder, const Spec& spec) {
  return MergedColumnParallelLinear::may_own(builder, merged_spec(spec));
}

}  // namespace choral::layers
