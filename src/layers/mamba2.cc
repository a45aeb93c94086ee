#include "layers/mamba2.h"

namespace choral::layers {

Mamba2::Mamba2(Builder& builder, const Spec& spec)
    : scan_{.groups = spec.groups,
            .heads = spec.heads,
            .state_dim = spec.state_dim,
            .head_dim = spec.head_dim,
            .decay = {},
            .dt_bias = {},
            .skip = {},
            .least_step = spec.least_step,
            .most_step = spec.most_step} {
  const int64_t inner = scan_.value_size(), channels = inner + 2 * scan_.group_size();
  in_proj_ = builder.make<ColumnParallelLinear>(
      {.prefix = spec.prefix + ".in_proj", .in = spec.hidden, .out = inner + channels + spec.heads, .bias = spec.proj_bias});
  vectors_ = builder.make<StateVectors>({.prefix = spec.prefix,
                                         .channels = channels,
                                         .taps = spec.conv_taps,
                                         .heads = spec.heads,
                                         .conv_bias = spec.conv_bias,
                                         .skip = true});
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
  const auto values = ctx.make_matrix(x.rows, inner);
  ctx.ops.selective_scan(ctx, scan, slots_.from(conv.tail_floats()), batch.state_runs, xbc, dt, values);
  ctx.ops.gate_rows(ctx, z, kernels::Activation::kSilu, values);
  norm_->forward_in_parts(ctx, values, scan.groups, batch.lora);
  if (add) return out_proj_->forward_add(ctx, values, y, batch.lora);
  out_proj_->forward(ctx, values, y, batch.lora);
}

}  // namespace choral::layers
