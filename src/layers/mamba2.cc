#include "layers/mamba2.h"

#include "platform/gather.h"

namespace choral::layers {

HeadShare Mamba2::own_heads(const Builder& builder, const Spec& spec) {
  return share_heads(builder.ranks, spec.heads, spec.groups,
                     [&](const HeadShare& own) { return ColumnParallelLinear::may_own(builder, in_spec(spec, own)); });
}

// y = [z | x | B | C | dt]
ColumnParallelLinear::Spec Mamba2::in_spec(const Spec& spec, const HeadShare& own) {
  const int64_t inner = spec.heads * spec.head_dim, group_size = spec.groups * spec.state_dim;
  ColumnParallelLinear::Spec in{.prefix = spec.prefix + ".in_proj",
                                .in = spec.hidden,
                                .out = 2 * inner + 2 * group_size + spec.heads,
                                .bias = spec.proj_bias};
  if (own.begins.empty()) return in;
  const Share z = own.heads.times(spec.head_dim), b = own.groups.times(spec.state_dim).from(2 * inner);
  in.own = {z, z.from(inner), b, b.from(group_size), own.heads.from(2 * inner + 2 * group_size)};
  return in;
}

Mamba2::Mamba2(Builder& builder, const Spec& spec, const HeadShare& own)
    : scan_{.groups = own.groups.count,
            .heads = own.heads.count,
            .state_dim = spec.state_dim,
            .head_dim = spec.head_dim,
            .decay = {},
            .dt_bias = {},
            .skip = {},
            .least_step = spec.least_step,
            .most_step = spec.most_step},
      groups_(spec.groups),
      value_begin_(own.heads.begin * spec.head_dim),
      begins_(column_begins(own, spec.head_dim)) {
  const int64_t inner = spec.heads * spec.head_dim, group_size = spec.groups * spec.state_dim;
  in_proj_ = builder.make<ColumnParallelLinear>(in_spec(spec, own));
  StateVectors::Spec vectors{.prefix = spec.prefix,
                             .channels = inner + 2 * group_size,
                             .taps = spec.conv_taps,
                             .heads = spec.heads,
                             .conv_bias = spec.conv_bias,
                             .skip = true};
  if (!own.begins.empty()) {
    const Share b = own.groups.times(spec.state_dim).from(inner);
    vectors.own_channels = {own.heads.times(spec.head_dim), b, b.from(group_size)};
    vectors.own_heads = own.heads;
  }
  vectors_ = builder.make<StateVectors>(vectors);
  norm_ = builder.make<RMSNorm>({.prefix = spec.prefix + ".norm", .size = inner, .eps = spec.rms_norm_eps});
  out_proj_ = builder.make<RowParallelLinear>(
      {.prefix = spec.prefix + ".out_proj", .in = inner, .out = spec.hidden, .bias = spec.proj_bias});
}

StateShape Mamba2::state_shape() const {
  return {.tail_rows = vectors_->conv().taps - 1,
          .channels = vectors_->conv().channels(),
          .heads = scan_.heads,
          .key_dim = scan_.state_dim,
          .value_dim = scan_.head_dim};
}

void Mamba2::forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
                     MatrixView<float> y) const {
  const platform::StepMark mark(ctx);
  auto scan = scan_;
  scan.decay = vectors_->decay(), scan.dt_bias = vectors_->dt_bias(), scan.skip = vectors_->skip();
  const auto conv = vectors_->conv();
  const int64_t inner = scan.value_size();
  const auto projected = ctx.make_matrix(x.rows, in_proj_->out_features());
  in_proj_->forward(ctx, x, projected, batch.lora);
  const auto z = projected.sub_cols(0, inner), xbc = projected.sub_cols(inner, conv.channels());
  const auto dt = projected.sub_cols(inner + conv.channels(), scan.heads);
  ctx.ops.causal_conv1d(ctx, conv, slots_, batch.state_runs, xbc);
  const auto whole = ctx.make_matrix(x.rows, out_proj_->in_features()), values = whole.sub_cols(value_begin_, inner);
  ctx.ops.selective_scan(ctx, scan, slots_.from(conv.tail_floats()), batch.state_runs, xbc, dt, values);
  ctx.ops.gate_rows(ctx, z, kernels::Activation::kSilu, values);
  if (!begins_.empty()) platform::gather_columns(ctx, whole, begins_);
  norm_->forward_in_parts(ctx, whole, groups_, batch.lora);
  if (add) return out_proj_->forward_add(ctx, whole, y, batch.lora);
  out_proj_->forward(ctx, whole, y, batch.lora);
}

}  // namespace choral::layers
