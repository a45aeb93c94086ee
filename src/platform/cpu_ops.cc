#include "platform/cpu_ops.h"

#include <cstring>
#include <mutex>

#include "kernels/activation/activation.h"
#include "kernels/fused/norm_quant.h"
#include "kernels/fused/qk_norm_rope.h"
#include "kernels/fused/swiglu_quant.h"
#include "kernels/norm/rms_norm.h"
#include "platform/session.h"

namespace choral::platform {
namespace {

using In = OpTable::In;
using Out = OpTable::Out;
using Weight = OpTable::Weight;
using kernels::PackedMatrix;

void matmul(const Context& ctx, const PackedMatrix& w, In x, const kernels::Epilogue& epilogue, Out y) {
  w.multiply(ctx.kernel, x, epilogue, y);
}

void lora_shrink(const Context& ctx, std::span<const kernels::LoRAShrink> shrinks) { kernels::lora_shrink(ctx.kernel, shrinks); }
void lora_expand(const Context& ctx, std::span<const kernels::LoRAExpand> expands) { kernels::lora_expand(ctx.kernel, expands); }

void gather_rows(const Context& ctx, const PackedMatrix& w, IndexArray<int32_t> ids, Out out) {
  constexpr int64_t kGrain = 8;  // a row is a few KiB
  std::mutex mutex;              // guards `failed`, which only a device's matrix sets
  Status failed;
  ctx.kernel.pool.parallel_for(ids.size(), kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      Status read = w.read_row(ids.host[static_cast<size_t>(i)], out.row_span(i));
      if (read.ok()) [[likely]]
        continue;
      const std::lock_guard lock(mutex);
      failed = std::move(read);
    }
  });
  ctx.session.fail(std::move(failed));
}

void take_rows(const Context&, In x, IndexArray<int32_t> rows, Out out) {
  for (int64_t i = 0; i < rows.size(); ++i) {
    std::memcpy(out.row(i), x.row(rows.host[static_cast<size_t>(i)]), static_cast<size_t>(x.cols) * sizeof(float));
  }
}

void add(const Context& ctx, In x, Out y) {
  constexpr int64_t kGrain = 8;
  ctx.kernel.pool.parallel_for(x.rows, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* from = x.row(i);
      float* to = y.row(i);
      for (int64_t c = 0; c < x.cols; ++c) to[c] += from[c];
    }
  });
}

void rms_norm(const Context& ctx, In x, Weight w, float eps, Out y) { kernels::rms_norm(ctx.kernel, x, w, eps, y); }

void rms_norm_heads(const Context& ctx, Out x, Weight w, float eps) {
  kernels::rms_norm_heads(ctx.kernel, x, x.cols / static_cast<int64_t>(w.size()), w, eps);
}

void rotary_embedding(const Context& ctx, const PlacedRotary& rotary, IndexArray<int32_t> positions, Out q, Out k) {
  const auto& table = rotary.table;
  kernels::apply_rotary(ctx.kernel, table, positions.host, q, q.cols / table.head_dim(), k, k.cols / table.head_dim());
}

void silu_and_mul(const Context& ctx, In x, Out y) { kernels::silu_and_mul(ctx.kernel, x, y); }
void gelu_tanh_and_mul(const Context& ctx, In x, Out y) { kernels::gelu_tanh_and_mul(ctx.kernel, x, y); }

void write_kv(const Context& ctx, const kernels::KvCacheView& cache, In k, In v, IndexArray<int64_t> slots) {
  kernels::write_kv(ctx.kernel, cache, k, v, slots.host);
}

void paged_attention(const Context& ctx, const kernels::AttentionParams& params, In q, const kernels::KvCacheView& cache,
                     const SequenceBatch& sequences, Out out) {
  kernels::paged_attention(ctx.kernel, params, q, cache, sequences.host, out);
}

void add_rms_norm(const Context& ctx, In x, Out residual, Weight w, float eps, Out y) {
  kernels::add_rms_norm(ctx.kernel, x, residual, w, eps, y);
}

void qk_norm_rope(const Context& ctx, const PlacedRotary& rotary, IndexArray<int32_t> positions, Out q, Weight q_weight, Out k,
                  Weight k_weight, float eps) {
  const auto& table = rotary.table;
  kernels::qk_norm_rope(ctx.kernel, {.q_weight = q_weight, .k_weight = k_weight, .eps = eps}, table, positions.host, q,
                        q.cols / table.head_dim(), k, k.cols / table.head_dim());
}

void rope_write_kv(const Context& ctx, const PlacedRotary& rotary, IndexArray<int32_t> positions, Out q, Out k, In v,
                   const kernels::KvCacheView& cache, IndexArray<int64_t> slots) {
  kernels::rope_write_kv(ctx.kernel, rotary.table, positions.host, q, q.cols / rotary.table.head_dim(), k, v, cache, slots.host);
}

void rms_norm_quantise(const Context& ctx, In x, Weight w, float eps, kernels::QuantiseOptions options,
                       kernels::QuantisedBlock* planes, Out y) {
  kernels::rms_norm_quantise(ctx.kernel, x, w, eps, options, planes, y);
}

void silu_and_mul_quantise(const Context& ctx, In x, kernels::QuantiseOptions options, kernels::QuantisedBlock* planes, Out y) {
  kernels::silu_and_mul_quantise(ctx.kernel, x, options, planes, y);
}

void matmul_quantised(const Context& ctx, const PackedMatrix& w, std::span<const kernels::QuantisedBlock> planes,
                      const kernels::Epilogue& epilogue, Out y) {
  w.multiply_quantised(ctx.kernel, planes, epilogue, y);
}

OpTable make_cpu_ops() {
  OpTable ops;
  compose_fused_ops(ops);
  const auto serve = [](auto& op, auto* run) { op.serve(run, "cpu"); };
  serve(ops.matmul, matmul);
  serve(ops.lora_shrink, lora_shrink);
  serve(ops.lora_expand, lora_expand);
  serve(ops.gather_rows, gather_rows);
  serve(ops.take_rows, take_rows);
  serve(ops.add, add);
  serve(ops.rms_norm, rms_norm);
  serve(ops.rms_norm_heads, rms_norm_heads);
  serve(ops.rotary_embedding, rotary_embedding);
  serve(ops.silu_and_mul, silu_and_mul);
  serve(ops.gelu_tanh_and_mul, gelu_tanh_and_mul);
  serve(ops.write_kv, write_kv);
  serve(ops.paged_attention, paged_attention);
  serve(ops.add_rms_norm, add_rms_norm);
  serve(ops.qk_norm_rope, qk_norm_rope);
  serve(ops.rope_write_kv, rope_write_kv);
  serve(ops.rms_norm_quantise, rms_norm_quantise);
  serve(ops.silu_and_mul_quantise, silu_and_mul_quantise);
  serve(ops.matmul_quantised, matmul_quantised);
  return ops;
}

}  // namespace

const OpTable& cpu_ops() {
  static const OpTable kOps = make_cpu_ops();
  return kOps;
}

}  // namespace choral::platform
