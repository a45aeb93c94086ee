#include "layers/gated_delta_net.h"

#include <numeric>

namespace choral::layers {

GatedDeltaNet::GatedDeltaNet(Builder& builder, const Spec& spec)
    : key_heads_(spec.key_heads),
      shape_{.tail_rows = spec.conv_taps - 1,
             .channels = 2 * spec.key_heads * spec.key_dim + spec.value_heads * spec.value_dim,
             .heads = spec.value_heads,
             .key_dim = spec.key_dim,
             .value_dim = spec.value_dim},
      qkvz_(make_qkvz(builder, spec)),
      ba_(make_ba(builder, spec)),
      vectors_(builder.make<StateVectors>(
          {.prefix = spec.prefix, .channels = shape_.channels, .taps = spec.conv_taps, .heads = spec.value_heads})),
      norm_(builder.make<RMSNorm>({.prefix = spec.prefix + ".norm", .size = spec.value_dim, .eps = spec.rms_norm_eps})),
      out_proj_(builder.make<RowParallelLinear>(
          {.prefix = spec.prefix + ".out_proj", .in = spec.value_heads * spec.value_dim, .out = spec.hidden})) {
  if (spec.out_proj_tiled && spec.value_heads != spec.key_heads) tile_out_proj(builder, spec);
}

void GatedDeltaNet::tile_out_proj(Builder& builder, const Spec& spec) {
  const int64_t dim = spec.value_dim, size = spec.value_heads * dim, of_key = spec.value_heads / spec.key_heads;
  tiles_.emplace(dim, size);
  std::vector<int32_t> order;
  for (int64_t i = 0; i < of_key; ++i) {
    for (int64_t key = 0; key < spec.key_heads; ++key) {
      const int64_t begin = (key * of_key + i) * dim;
      tiles_->add(begin, dim);
      for (int64_t column = begin; column < begin + dim; ++column) order.push_back(static_cast<int32_t>(column));
    }
  }
  if (builder.lora_targets.empty()) return;
  lora::LoRATarget& target = builder.lora_targets.back();
  target.in_order = order;
  target.base_row = [order, tiled_row = std::move(target.base_row)](int64_t row, std::span<float> out) -> Status {
    std::vector<float> tiled(out.size());
    CHORAL_RETURN_IF_ERROR(tiled_row(row, tiled));
    for (size_t i = 0; i < order.size(); ++i) out[order[i]] = tiled[i];
    return {};
  };
}

GatedDeltaNet::Projection GatedDeltaNet::make_qkvz(Builder& builder, const Spec& spec) {
  const int64_t keys = spec.key_heads * spec.key_dim, values = spec.value_heads * spec.value_dim;
  const std::string name = spec.prefix + ".in_proj_qkvz";
  if (!spec.heads_in_turns) {
    return {.linear = builder.make<MergedColumnParallelLinear>(
                {.prefix = name, .in = spec.hidden, .members = {"in_proj_qkv", "in_proj_z"}, .out = {2 * keys + values, values}}),
            .order = {}};
  }
  const int64_t of_head = values / spec.key_heads, turn = 2 * spec.key_dim + 2 * of_head;
  ColumnOrder order(std::gcd(spec.key_dim, of_head), spec.key_heads * turn);
  const auto add_all = [&](int64_t begin, int64_t count) {
    for (int64_t head = 0; head < spec.key_heads; ++head) order.add(head * turn + begin, count);
  };
  add_all(0, spec.key_dim);
  add_all(spec.key_dim, spec.key_dim);
  add_all(2 * spec.key_dim, of_head);
  add_all(2 * spec.key_dim + of_head, of_head);
  return {.linear = builder.make<ColumnParallelLinear>({.prefix = name, .in = spec.hidden, .out = spec.key_heads * turn}),
          .order = std::move(order)};
}

GatedDeltaNet::Projection GatedDeltaNet::make_ba(Builder& builder, const Spec& spec) {
  const std::string name = spec.prefix + ".in_proj_ba";
  if (!spec.heads_in_turns) {
    return {.linear = builder.make<MergedColumnParallelLinear>({.prefix = name,
                                                                .in = spec.hidden,
                                                                .members = {"in_proj_b", "in_proj_a"},
                                                                .out = {spec.value_heads, spec.value_heads}}),
            .order = {}};
  }
  const int64_t of_head = spec.value_heads / spec.key_heads;
  ColumnOrder order(of_head, 2 * spec.value_heads);
  for (const int64_t begin : {int64_t{0}, of_head}) {
    for (int64_t head = 0; head < spec.key_heads; ++head) order.add(2 * head * of_head + begin, of_head);
  }
  return {.linear = builder.make<ColumnParallelLinear>({.prefix = name, .in = spec.hidden, .out = 2 * spec.value_heads}),
          .order = std::move(order)};
}

MatrixView<float> GatedDeltaNet::Projection::forward(const platform::Context& ctx, const ForwardBatch& batch,
                                                     MatrixView<const float> x) const {
  const auto y = ctx.make_matrix(x.rows, linear->out_features());
  linear->forward(ctx, x, y, batch.lora);
  if (!order) return y;
  const auto ordered = ctx.make_matrix(y.rows, y.cols);
  order->apply(ctx, y, ordered);
  return ordered;
}

kernels::DeltaRule GatedDeltaNet::rule() const {
  return {.key_heads = key_heads_,
          .value_heads = shape_.heads,
          .key_dim = shape_.key_dim,
          .value_dim = shape_.value_dim,
          .decay = vectors_->decay(),
          .dt_bias = vectors_->dt_bias()};
}

void GatedDeltaNet::forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
                            MatrixView<float> y) const {
  const platform::StepMark mark(ctx);
  const auto rule = this->rule();
  const auto qkvz = qkvz_.forward(ctx, batch, x), ba = ba_.forward(ctx, batch, x);
  const auto qkv = qkvz.sub_cols(0, shape_.channels), z = qkvz.sub_cols(shape_.channels, rule.value_size());
  ctx.ops.causal_conv1d(ctx, vectors_->conv(), slots_, batch.state_runs, qkv);
  const auto values = ctx.make_matrix(x.rows, rule.value_size());
  ctx.ops.gated_delta_rule(ctx, rule, slots_.from(shape_.tail_floats()), batch.state_runs, qkv, ba, values);
  norm_->forward_heads(ctx, values, batch.lora);
  ctx.ops.gate_rows(ctx, z, kernels::Activation::kSilu, values);
  auto from = values;
  if (tiles_) {
    from = ctx.make_matrix(x.rows, rule.value_size());
    tiles_->apply(ctx, values, from);
  }
  if (add) return out_proj_->forward_add(ctx, from, y, batch.lora);
  out_proj_->forward(ctx, from, y, batch.lora);
}

}  // namespace choral::layers
