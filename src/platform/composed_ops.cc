// What the fused operators mean, said by others of whatever table they are called through.
#include "platform/cpu_ops.h"

namespace choral::platform {
namespace {

using In = OpTable::In;
using Out = OpTable::Out;
using Weight = OpTable::Weight;

void add_rms_norm(const Context& ctx, In x, Out residual, Weight w, float eps, Out y) {
  ctx.ops.add(ctx, x, residual);
  ctx.ops.rms_norm(ctx, residual, w, eps, y);
}

void qk_norm_rope(const Context& ctx, const PlacedRotary& rotary, IndexArray<int32_t> positions, Out q, Weight q_weight, Out k,
                  Weight k_weight, float eps) {
  ctx.ops.rms_norm_heads(ctx, q, q_weight, eps);
  ctx.ops.rms_norm_heads(ctx, k, k_weight, eps);
  ctx.ops.rotary_embedding(ctx, rotary, positions, q, k);
}

void rope_write_kv(const Context& ctx, const PlacedRotary& rotary, IndexArray<int32_t> positions, Out q, Out k, In v,
                   const kernels::KvCacheView& cache, IndexArray<int64_t> slots) {
  ctx.ops.rotary_embedding(ctx, rotary, positions, q, k);
  ctx.ops.write_kv(ctx, cache, k, v, slots);
}

}  // namespace

void compose_fused_ops(OpTable& table) {
  const auto serve = [](auto& op, auto* run) { op.serve(run, "composed"); };
  serve(table.add_rms_norm, add_rms_norm);
  serve(table.qk_norm_rope, qk_norm_rope);
  serve(table.rope_write_kv, rope_write_kv);
}

}  // namespace choral::platform
