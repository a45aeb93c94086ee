// What the fused operators mean, said by others of whatever table they are called through.
#include "platform/ops/cpu_ops.h"

namespace choral::platform {
namespace ops {

void AddRmsNorm::forward_native(const Context& ctx, In x, Out residual, Weight w, float eps, Out y) {
  ctx.ops.add(ctx, x, residual);
  ctx.ops.rms_norm(ctx, residual, w, eps, y);
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

}  // namespace ops

void compose_fused_ops(OpTable& table) {
  AllOps::for_each([&]<class D>(D) {
    if constexpr (D::kFused && !D::kCpuOnly) table.get<D>().serve(D::forward_native, "composed");
  });
}

}  // namespace choral::platform
