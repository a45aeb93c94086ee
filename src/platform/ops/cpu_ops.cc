#include "platform/ops/cpu_ops.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "kernels/activation/activation.h"
#include "kernels/fused/expert_rows.h"
#include "kernels/fused/norm_quant.h"
#include "kernels/fused/qk_norm_rope.h"
#include "kernels/fused/swiglu_quant.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/sampling/logits.h"
#include "kernels/task_size.h"
#include "platform/ops/op_table.h"
#include "platform/session.h"

namespace choral::platform {
namespace ops {

void Matmul::forward_cpu(const Context& ctx, const PackedMatrix& w, In x, const Epilogue& epilogue, Out y) {
  w.multiply(ctx.kernel, x, epilogue, y);
}

void GroupedMatmul::forward_cpu(const Context& ctx, std::span<const kernels::GroupProduct> products) {
  kernels::grouped_matmul(ctx.kernel, products);
}

void PackedLoRAShrink::forward_cpu(const Context& ctx, std::span<const kernels::LoRAShrink> shrinks) {
  kernels::lora_shrink(ctx.kernel, shrinks);
}
void PackedLoRAExpand::forward_cpu(const Context& ctx, std::span<const kernels::LoRAExpand> expands) {
  kernels::lora_expand(ctx.kernel, expands);
}
void PackedLoRAAbsorb::forward_cpu(const Context& ctx, std::span<const kernels::LoRAAbsorb> items) {
  kernels::lora_absorb(ctx.kernel, items);
}

void GatherRows::forward_cpu(const Context& ctx, const PackedMatrix& w, Indices ids, Out out) {
  constexpr int64_t kGrain = 8;  // a row is a few KiB
  std::mutex mutex;              // guards `failed`, which only a device's matrix sets
  Status failed;
  ctx.kernel.pool.parallel_for(ids.size(), kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      Status read = w.read_row(ids.host[i], out.row_span(i));
      if (read.ok()) [[likely]]
        continue;
      const std::lock_guard lock(mutex);
      failed = std::move(read);
    }
  });
  ctx.session.fail(std::move(failed));
}

void TakeRows::forward_cpu(const Context& ctx, In x, Indices rows, Out out) {
  ctx.kernel.pool.parallel_for(rows.size(), kernels::pieces_per_task(kernels::kLightTask, x.cols),
                               [&](int64_t begin, int64_t end, int) {
                                 for (int64_t i = begin; i < end; ++i) {
                                   std::memcpy(out.row(i), x.row(rows.host[i]), static_cast<size_t>(x.cols) * sizeof(float));
                                 }
                               });
}

void Add::forward_cpu(const Context& ctx, In x, Out y) {
  constexpr int64_t kGrain = 8;
  ctx.kernel.pool.parallel_for(x.rows, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* from = x.row(i);
      float* to = y.row(i);
      for (int64_t c = 0; c < x.cols; ++c) to[c] += from[c];
    }
  });
}

void AddBias::forward_cpu(const Context& ctx, Weight bias, Out y) {
  CHORAL_CHECK(std::ssize(bias) == y.cols, "a bias fits the row");
  Add::forward_cpu(ctx, {bias.data(), y.rows, y.cols, /*stride=*/0}, y);
}

void Scale::forward_cpu(const Context& ctx, Out x, float factor) { kernels::scale_rows(ctx.kernel, x, factor); }

void ScaleByPosition::forward_cpu(const Context& ctx, const PositionScale& scale, Indices positions, Out x) {
  kernels::scale_by_position(ctx.kernel, scale, positions.host, x);
}

void SubtractMean::forward_cpu(const Context& ctx, In x, Out y) { kernels::subtract_mean(ctx.kernel, x, y); }

void MoeGating::forward_cpu(const Context& ctx, In logits, const kernels::MoeGating& gating, MatrixView<int32_t> ids,
                            Out weights) {
  kernels::moe_gating_top_k(ctx.kernel, logits, gating, ids, weights);
}

void MoeCombine::forward_cpu(const Context& ctx, In x, Indices places, In weights, bool add, Out y) {
  kernels::combine_experts(ctx.kernel, x, places.host, weights, add, y);
}

void SoftCap::forward_cpu(const Context& ctx, Out x, float cap) { kernels::soft_cap(ctx.kernel, x, cap); }

void Sample::forward_cpu(const Context& ctx, Out logits, const SamplingBatch& batch) {
  kernels::sample_rows(ctx.kernel.level, logits, lists_of(batch), ctx.kernel.scratch);
}

void RmsNorm::forward_cpu(const Context& ctx, In x, Weight w, float eps, Out y) { kernels::rms_norm(ctx.kernel, x, w, eps, y); }

void RmsNormHeads::forward_cpu(const Context& ctx, Out x, Weight w, float eps) {
  kernels::rms_norm_heads(ctx.kernel, x, x.cols / std::ssize(w), w, eps);
}

void RotaryEmbedding::forward_cpu(const Context& ctx, const PlacedRotary& rotary, Indices positions, Out q, Out k) {
  const auto& table = rotary.table;
  kernels::apply_rotary(ctx.kernel, table, positions.host, q, q.cols / table.head_dim(), k, k.cols / table.head_dim());
}

void SiluAndMul::forward_cpu(const Context& ctx, In x, Out y) { kernels::silu_and_mul(ctx.kernel, x, y); }
void GeluTanhAndMul::forward_cpu(const Context& ctx, In x, Out y) { kernels::gelu_tanh_and_mul(ctx.kernel, x, y); }
void SwigluOaiAndMul::forward_cpu(const Context& ctx, In x, const ClampedSwiglu& form, Out y) {
  kernels::swigluoai_and_mul(ctx.kernel, form, x, y);
}

void GateRows::forward_cpu(const Context& ctx, In gate, kernels::Activation act, Out y) {
  if (gate.cols == y.cols) return kernels::activation_and_mul(ctx.kernel, act, gate, y, y);
  CHORAL_CHECK(gate.cols == 1, "a gate is as wide as its rows, or one column");
  const Arena::Mark mark(ctx.kernel.scratch);
  const Out factors(ctx.kernel.scratch.make<float>(y.rows).data(), y.rows, 1);
  std::fill_n(factors.data, y.rows, 1.0F);
  kernels::activation_and_mul(ctx.kernel, act, gate, factors, factors);
  for (int64_t i = 0; i < y.rows; ++i) kernels::scale_rows(ctx.kernel, y.sub_rows(i, 1), *factors.row(i));
}

void CausalConv1d::forward_cpu(const Context& ctx, const kernels::CausalConv& conv, const kernels::StateView& tails, Runs runs,
                               Out x) {
  kernels::causal_conv1d(ctx.kernel, conv, tails, runs, x);
}

void GatedDeltaRule::forward_cpu(const Context& ctx, const kernels::DeltaRule& rule, const kernels::StateView& states, Runs runs,
                                 Out qkv, In ba, Out out) {
  kernels::gated_delta_rule(ctx.kernel, rule, states, runs, qkv, ba, out);
}

void SelectiveScan::forward_cpu(const Context& ctx, const kernels::SelectiveScan& scan, const kernels::StateView& states,
                                Runs runs, In xbc, In dt, Out out) {
  kernels::selective_scan(ctx.kernel, scan, states, runs, xbc, dt, out);
}

void WriteKv::forward_cpu(const Context& ctx, const KvCacheView& cache, In k, In v, Slots slots) {
  kernels::write_kv(ctx.kernel, cache, k, v, slots.host);
}

void PagedAttention::forward_cpu(const Context& ctx, const AttentionParams& params, In q, const KvCacheView& cache,
                                 const SequenceBatch& sequences, Weight sinks, Out out) {
  AttentionParams whole = params;
  whole.sinks = sinks;
  kernels::paged_attention(ctx.kernel, whole, q, cache, sequences.host, out);
}

void AddRmsNorm::forward_cpu(const Context& ctx, In x, Out residual, Weight w, float eps, Out y) {
  kernels::add_rms_norm(ctx.kernel, x, residual, w, eps, y);
}

void AddRmsNormBias::forward_cpu(const Context& ctx, In x, Out residual, Weight w, Weight bias, float eps, Out y) {
  kernels::add_rms_norm(ctx.kernel, x, residual, w, eps, y, bias);
}

void QkNormRope::forward_cpu(const Context& ctx, const PlacedRotary& rotary, Indices positions, Out q, Weight q_weight, Out k,
                             Weight k_weight, float eps) {
  const auto& table = rotary.table;
  kernels::qk_norm_rope(ctx.kernel, {.q_weight = q_weight, .k_weight = k_weight, .eps = eps}, table, positions.host, q,
                        q.cols / table.head_dim(), k, k.cols / table.head_dim());
}

void RopeWriteKv::forward_cpu(const Context& ctx, const PlacedRotary& rotary, Indices positions, Out q, Out k, In v,
                              const KvCacheView& cache, Slots slots) {
  kernels::rope_write_kv(ctx.kernel, rotary.table, positions.host, q, q.cols / rotary.table.head_dim(), k, v, cache, slots.host);
}

void RmsNormQuantise::forward_cpu(const Context& ctx, In x, Weight w, Weight bias, float eps, const QuantisedRows& out, Out y) {
  kernels::rms_norm_quantise(ctx.kernel, x, w, eps, out, y, bias);
}

void SiluAndMulQuantise::forward_cpu(const Context& ctx, In x, const QuantisedRows& out, Out y) {
  kernels::silu_and_mul_quantise(ctx.kernel, x, out, y);
}

void MatmulQuantised::forward_cpu(const Context& ctx, const PackedMatrix& w, const QuantisedRows& x, const Epilogue& epilogue,
                                  Out y) {
  w.multiply_quantised(ctx.kernel, x, epilogue, y);
}

}  // namespace ops

const OpTable& cpu_ops() {
  static const OpTable kOps = [] {
    OpTable table;
    AllOps::for_each([&]<class D>(D) { table.get<D>().serve(D::forward_cpu, "cpu"); });
    return table;
  }();
  return kOps;
}

}  // namespace choral::platform
