// What operators mean: plain loops on rows of the host's memory, in one thread. CustomOps that are switched off run them, and a
// plug-in's operators are held to them.
#include <algorithm>
#include <cmath>

#include "kernels/ref/activation.h"
#include "kernels/ref/attention.h"
#include "kernels/ref/moe_gating.h"
#include "kernels/ref/recurrent.h"
#include "kernels/ref/rms_norm.h"
#include "kernels/ref/rotary.h"
#include "kernels/ref/sampling.h"
#include "platform/ops/cpu_ops.h"
#include "platform/session.h"

namespace choral::platform {
namespace {

void rotate(const kernels::RotaryTable& table, std::span<const int32_t> positions, ops::Out x) {
  const auto half = static_cast<size_t>(table.rotary_dim() / 2);
  for (int64_t token = 0; token < x.rows; ++token) {
    const int64_t position = positions[token];
    for (int64_t begin = 0; begin < x.cols; begin += table.head_dim()) {
      const std::span<float> head(x.row(token) + begin, table.rotary_dim());
      kernels::ref::rotate_head(head, {table.cos_row(position), half}, {table.sin_row(position), half}, table.interleaved());
    }
  }
}

}  // namespace

void finish_product(const kernels::Epilogue& epilogue, MatrixView<float> product, MatrixView<float> y) {
  if (epilogue.product_hook != nullptr) (*epilogue.product_hook)(epilogue.row, epilogue.col, product);
  for (int64_t r = 0; r < product.rows; ++r) {
    for (int64_t c = 0; c < product.cols; ++c) {
      float value = product.row(r)[c];
      if (epilogue.bias != nullptr) value += epilogue.bias[c];
      y.row(r)[c] = epilogue.accumulate ? value + y.row(r)[c] : value;
    }
  }
  if (epilogue.result_hook != nullptr) (*epilogue.result_hook)(epilogue.row, epilogue.col, y);
}

namespace ops {

void Matmul::forward_native(const Context& ctx, const PackedMatrix& w, In x, const Epilogue& epilogue, Out y) {
  Arena& scratch = ctx.kernel.scratch;
  const Arena::Mark mark(scratch);
  const Out product(scratch.make<float>(y.rows * y.cols).data(), y.rows, y.cols);
  const auto row = scratch.make<float>(w.k());
  for (int64_t j = 0; j < w.n(); ++j) {
    ctx.session.fail(w.read_row(j, row));
    for (int64_t i = 0; i < x.rows; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < w.k(); ++k) sum += static_cast<double>(x.row(i)[k]) * row[k];
      product.row(i)[j] = static_cast<float>(sum);
    }
  }
  finish_product(epilogue, product, y);
}

// The order of an adapter's panels is known to its kernels alone: here they run one after the other.
void PackedLoRAShrink::forward_native(const Context& ctx, std::span<const kernels::LoRAShrink> shrinks) {
  for (const auto& s : shrinks) {
    s.matrix->shrink(ctx.kernel.level, s.x, s.factor, s.first_rank, s.first_rank + s.ranks(), s.middle);
  }
}
void PackedLoRAExpand::forward_native(const Context& ctx, std::span<const kernels::LoRAExpand> expands) {
  for (const auto& e : expands) kernels::lora_expand(ctx.kernel.level, e.terms, e.col, e.y);
}
void PackedLoRAAbsorb::forward_native(const Context& ctx, std::span<const kernels::LoRAAbsorb> items) {
  for (const auto& item : items) kernels::lora_absorb(ctx.kernel, {&item, 1});
}

void GatherRows::forward_native(const Context& ctx, const PackedMatrix& w, Indices ids, Out out) {
  for (int64_t i = 0; i < ids.size(); ++i) ctx.session.fail(w.read_row(ids.host[i], out.row_span(i)));
}

void TakeRows::forward_native(const Context&, In x, Indices rows, Out out) {
  for (int64_t i = 0; i < rows.size(); ++i) std::copy_n(x.row(rows.host[i]), x.cols, out.row(i));
}

void Add::forward_native(const Context&, In x, Out y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) y.row(r)[c] += x.row(r)[c];
  }
}

void AddBias::forward_native(const Context& ctx, Weight bias, Out y) {
  Add::forward_native(ctx, {bias.data(), y.rows, y.cols, /*stride=*/0}, y);
}

void Scale::forward_native(const Context&, Out x, float factor) {
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) x.row(r)[c] *= factor;
  }
}

void ScaleByPosition::forward_native(const Context&, const PositionScale& scale, Indices positions, Out x) {
  for (int64_t i = 0; i < x.rows; ++i) {
    for (float& value : x.row_span(i)) value *= scale.at(positions.host[i]);
  }
}

void SubtractMean::forward_native(const Context&, In x, Out y) {
  for (int64_t i = 0; i < x.rows; ++i) {
    double sum = 0;
    for (int64_t c = 0; c < x.cols; ++c) sum += x.row(i)[c];
    const auto mean = static_cast<float>(sum / static_cast<double>(x.cols));
    for (int64_t c = 0; c < x.cols; ++c) y.row(i)[c] = x.row(i)[c] - mean;
  }
}

void MoeGating::forward_native(const Context&, In logits, const kernels::MoeGating& gating, MatrixView<int32_t> ids,
                               Out weights) {
  for (int64_t t = 0; t < logits.rows; ++t) {
    const auto choice = kernels::ref::moe_gating_row(logits.row_span(t), gating);
    std::copy(choice.ids.begin(), choice.ids.end(), ids.row(t));
    std::copy(choice.weights.begin(), choice.weights.end(), weights.row(t));
  }
}

void MoeCombine::forward_native(const Context&, In x, Indices places, In weights, bool add, Out y) {
  for (int64_t t = 0; t < y.rows; ++t) {
    for (int64_t c = 0; c < y.cols; ++c) {
      float sum = add ? y.row(t)[c] : 0.0F;
      for (int64_t s = 0; s < weights.cols; ++s) {
        sum = std::fma(weights.row(t)[s], x.row(places.host[t * weights.cols + s])[c], sum);
      }
      y.row(t)[c] = sum;
    }
  }
}

void SoftCap::forward_native(const Context&, Out x, float cap) {
  for (int64_t r = 0; r < x.rows; ++r) {
    for (float& value : x.row_span(r)) value = static_cast<float>(cap * std::tanh(static_cast<double>(value) / cap));
  }
}

void Sample::forward_native(const Context&, Out logits, const SamplingBatch& batch) {
  kernels::ref::sample_rows(logits, lists_of(batch));
}

void RmsNorm::forward_native(const Context&, In x, Weight w, float eps, Out y) { kernels::ref::rms_norm(x, w, eps, y); }

void RmsNormHeads::forward_native(const Context&, Out x, Weight w, float eps) {
  const auto size = std::ssize(w);
  for (int64_t begin = 0; begin < x.cols; begin += size) {
    const auto head = x.sub_cols(begin, size);
    kernels::ref::rms_norm(head, w, eps, head);
  }
}

void RotaryEmbedding::forward_native(const Context&, const PlacedRotary& rotary, Indices positions, Out q, Out k) {
  rotate(rotary.table, positions.host, q);
  rotate(rotary.table, positions.host, k);
}

void SiluAndMul::forward_native(const Context&, In x, Out y) {
  kernels::ref::activation_and_mul(kernels::Activation::kSilu, x, y);
}
void GeluTanhAndMul::forward_native(const Context&, In x, Out y) {
  kernels::ref::activation_and_mul(kernels::Activation::kGeluTanh, x, y);
}
void SwigluOaiAndMul::forward_native(const Context&, In x, const ClampedSwiglu& form, Out y) {
  kernels::ref::swigluoai_and_mul(form, x, y);
}

void GateRows::forward_native(const Context&, In gate, kernels::Activation act, Out y) {
  for (int64_t r = 0; r < y.rows; ++r) {
    for (int64_t c = 0; c < y.cols; ++c) {
      y.row(r)[c] = static_cast<float>(kernels::ref::activation(act, gate.row(r)[gate.cols == 1 ? 0 : c]) * y.row(r)[c]);
    }
  }
}

void CausalConv1d::forward_native(const Context&, const kernels::CausalConv& conv, const kernels::StateView& tails, Runs runs,
                                  Out x) {
  kernels::ref::causal_conv1d(conv, tails, runs, x);
}

void GatedDeltaRule::forward_native(const Context&, const kernels::DeltaRule& rule, const kernels::StateView& states, Runs runs,
                                    Out qkv, In ba, Out out) {
  kernels::ref::gated_delta_rule(rule, states, runs, qkv, ba, out);
}

void SelectiveScan::forward_native(const Context&, const kernels::SelectiveScan& scan, const kernels::StateView& states,
                                   Runs runs, In xbc, In dt, Out out) {
  kernels::ref::selective_scan(scan, states, runs, xbc, dt, out);
}

void WriteKv::forward_native(const Context& ctx, const KvCacheView& cache, In k, In v, Slots slots) {
  kernels::write_kv(ctx.kernel, cache, k, v, slots.host);  // stores, and computes nothing
}

void PagedAttention::forward_native(const Context&, const AttentionParams& params, In q, const KvCacheView& cache,
                                    const SequenceBatch& sequences, Weight sinks, Out out) {
  AttentionParams whole = params;
  whole.sinks = sinks;
  kernels::ref::paged_attention(whole, q, cache, sequences.host, out);
}

}  // namespace ops

const OpTable& native_ops() {
  static const OpTable kOps = [] {
    OpTable table = cpu_ops();
    AllOps::for_each([&]<class D>(D) {
      if constexpr (!D::kFused && !D::kCpuOnly) table.get<D>().serve(D::forward_native, "native");
    });
    compose_fused_ops(table);
    return table;
  }();
  return kOps;
}

}  // namespace choral::platform
