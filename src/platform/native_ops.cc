// What CustomOps mean: the plain loops of kernels/ref on rows of the host's memory.
#include "kernels/ref/activation.h"
#include "kernels/ref/rms_norm.h"
#include "kernels/ref/rotary.h"
#include "platform/cpu_ops.h"

namespace choral::platform {
namespace {

using In = OpTable::In;
using Out = OpTable::Out;
using Weight = OpTable::Weight;

void rms_norm(const Context&, In x, Weight w, float eps, Out y) { kernels::ref::rms_norm(x, w, eps, y); }

void rms_norm_heads(const Context&, Out x, Weight w, float eps) {
  const auto size = static_cast<int64_t>(w.size());
  for (int64_t begin = 0; begin < x.cols; begin += size) {
    const auto head = x.sub_cols(begin, size);
    kernels::ref::rms_norm(head, w, eps, head);
  }
}

void rotate(const kernels::RotaryTable& table, std::span<const int32_t> positions, Out x) {
  const auto half = static_cast<size_t>(table.rotary_dim() / 2);
  for (int64_t token = 0; token < x.rows; ++token) {
    const int64_t position = positions[static_cast<size_t>(token)];
    for (int64_t begin = 0; begin < x.cols; begin += table.head_dim()) {
      const std::span<float> head(x.row(token) + begin, static_cast<size_t>(table.rotary_dim()));
      kernels::ref::rotate_head(head, {table.cos_row(position), half}, {table.sin_row(position), half}, table.interleaved());
    }
  }
}

void rotary_embedding(const Context&, const PlacedRotary& rotary, IndexArray<int32_t> positions, Out q, Out k) {
  rotate(rotary.table, positions.host, q);
  rotate(rotary.table, positions.host, k);
}

void silu_and_mul(const Context&, In x, Out y) { kernels::ref::activation_and_mul(kernels::Activation::kSilu, x, y); }
void gelu_tanh_and_mul(const Context&, In x, Out y) { kernels::ref::activation_and_mul(kernels::Activation::kGeluTanh, x, y); }

OpTable make_native_ops() {
  OpTable ops = cpu_ops();
  compose_fused_ops(ops);
  const auto serve = [](auto& op, auto* run) { op.serve(run, "native"); };
  serve(ops.rms_norm, rms_norm);
  serve(ops.rms_norm_heads, rms_norm_heads);
  serve(ops.rotary_embedding, rotary_embedding);
  serve(ops.silu_and_mul, silu_and_mul);
  serve(ops.gelu_tanh_and_mul, gelu_tanh_and_mul);
  return ops;
}

}  // namespace

const OpTable& native_ops() {
  static const OpTable kOps = make_native_ops();
  return kOps;
}

}  // namespace choral::platform
