// What the fused operators mean, said by others of whatever table they are called through.
#include "platform/ops/cpu_ops.h"

namespace choral::platform {
namespace ops {

void AddRmsNorm::forward_native(const Context& ctx, In x, Out residual, Weight w, float eps, Out y) {
  ctx.ops.add(ctx, x, residual);
  ctx.ops.rms_norm(ctx, residual, w, eps, y);
}

void AddRmsNormBias::forward_native(const Context& ctx, In x, Out residual, Weight w, Weight bias, float eps, Out y) {
  ctx.ops.add_rms_norm(ctx, x, residual, w, eps, y);
  ctx.ops.add_bias(ctx, bias, y);
}

void QkNormRope::forward_native(const Context& ctx, const PlacedRotary& rotary, Indices positions, Out q, Weight q_weight, Out k,
                                Weight k_weight, float eps) {
  ctx.ops.rms_norm_heads(ctx, q, q_weight, eps);
  ctx.ops.rms_norm_heads(ctx, k, k_weight, eps);
  ctx.ops.rotary_embedding(ctx, rotary, positions, q, k);
}

void RopeWriteKv::forward_native(const Context& ctx, const PlacedRotary& rotary, Indices positions, Out q, Out k, In v,
                                 const KvCacheView& cache, Slots slots) {
  ctx.ops.rotary_embedding(ctx, rotary, positions, q, k);
  ctx.ops.write_kv(ctx, cache, k, v, slots);
}

void GroupedMatmul::forward_native(const Context& ctx, std::span<const kernels::GroupProduct> products) {
  for (const auto& [w, x, epilogue, y] : products) {
    if (y.rows == 0) continue;
    x.quantised.empty() ? ctx.ops.matmul(ctx, *w, x.x, epilogue, y) : ctx.ops.matmul_quantised(ctx, *w, x.quantised, epilogue, y);
  }
}

}  // namespace ops

void compose_fused_ops(OpTable& table) {
  AllOps::for_each([&]<class D>(D) {
    if constexpr (D::kFused && !D::kCpuOnly) table.get<D>().serve(D::forward_native, "composed");
  });
}

}  // namespace choral::platform
