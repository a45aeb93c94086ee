// The operators on adapters' stacks: this build's kernels, which are kernels/lora/lora.h, the plain loops that they mean, and the
// fused ones, which are these slice by slice.
#include "kernels/lora/lora.h"
#include "kernels/quant/dequantise.h"
#include "platform/ops/op_table.h"

namespace choral::platform::ops {
namespace {

TensorView view_of(const Stack& stack) { return {stack.data, stack.dtype, {stack.count, stack.rows, stack.cols}, kCpuDevice}; }
TensorView view_of(Indices values) { return {std::as_bytes(values.host).data(), DType::kI32, {values.size()}, kCpuDevice}; }
// The kernels take matrices as a whole.
void expect_whole(In m) { CHORAL_CHECK(m.stride == m.cols || m.rows <= 1, "stacked operators of the CPU take whole matrices"); }
TensorView view_of(In m) {
  expect_whole(m);
  return {reinterpret_cast<const std::byte*>(m.data), DType::kF32, {m.rows, m.cols}, kCpuDevice};
}
kernels::MutableTensorView output_of(Out m) {
  expect_whole(m);
  return {reinterpret_cast<std::byte*>(m.data), DType::kF32, {m.rows, m.cols}, kCpuDevice};
}

// By row or by sequence, as the slots are said; of the whole row or a slice of it.
void shrink(const Context& ctx, In x, const Stack& a, Indices slots, float scaling, Out y) {
  ctx.ops.bgmv_shrink(ctx, x, a, slots, scaling, y);
}
void shrink(const Context& ctx, In x, const Stack& a, const SlotSequences& slots, float scaling, Out y) {
  ctx.ops.sgmv_shrink(ctx, x, a, slots, scaling, y);
}
void expand(const Context& ctx, In x, const Stack& b, Indices slots, int64_t begin, bool add, Out y) {
  if (b.rows == y.cols) return ctx.ops.bgmv_expand(ctx, x, b, slots, add, y);
  ctx.ops.bgmv_expand_slice(ctx, x, b, slots, begin, add, y);
}
void expand(const Context& ctx, In x, const Stack& b, const SlotSequences& slots, int64_t begin, bool add, Out y) {
  if (b.rows == y.cols) return ctx.ops.sgmv_expand(ctx, x, b, slots, add, y);
  ctx.ops.sgmv_expand_slice(ctx, x, b, slots, begin, add, y);
}

// Shapes are fixed when the batch is built.
void must(const Status& status) { CHORAL_CHECK(status.ok(), status.message()); }

// y[row, begin + j] (+)= scaling · Σ_k stack[slot][j, k]·x[row, k]
void multiply_row(const Context& ctx, In x, const Stack& stack, int64_t slot, int64_t row, int64_t begin, bool add, float scaling,
                  Out y) {
  const Arena::Mark mark(ctx.kernel.scratch);
  const auto values = ctx.kernel.scratch.make<float>(stack.cols);
  for (int64_t j = 0; j < std::min(stack.rows, y.cols - begin); ++j) {
    kernels::dequantise_row(stack.dtype, stack.row(slot, j), stack.cols, values.data());
    double sum = 0;
    for (int64_t k = 0; k < stack.cols; ++k) sum += static_cast<double>(values[k]) * x.row(row)[k];
    float& out = y.row(row)[begin + j];
    out = (add ? out : 0.0F) + scaling * static_cast<float>(sum);
  }
}

void multiply(const Context& ctx, In x, const Stack& stack, Indices slots, int64_t begin, bool add, float scaling, Out y) {
  for (int64_t row = 0; row < slots.size(); ++row) {
    const int32_t slot = slots.host[row];
    if (slot >= 0) multiply_row(ctx, x, stack, slot, row, begin, add, scaling, y);
  }
}

void multiply(const Context& ctx, In x, const Stack& stack, const SlotSequences& sequences, int64_t begin, bool add,
              float scaling, Out y) {
  for (size_t i = 0; i < sequences.slots.host.size(); ++i) {
    const int64_t first = sequences.starts.host[i];
    for (int64_t row = first; row < first + sequences.lengths.host[i]; ++row) {
      const int32_t slot = sequences.slots.host[i];
      if (slot >= 0) multiply_row(ctx, x, stack, slot, row, begin, add, scaling, y);
    }
  }
}

}  // namespace

void BgmvShrink::forward_cpu(const Context& ctx, In x, const Stack& a, Indices slots, float scaling, Out y) {
  must(kernels::bgmv_shrink(ctx.kernel, view_of(x), view_of(a), output_of(y), view_of(slots), scaling));
}
void BgmvExpand::forward_cpu(const Context& ctx, In x, const Stack& b, Indices slots, bool add, Out y) {
  must(kernels::bgmv_expand(ctx.kernel, view_of(x), view_of(b), output_of(y), view_of(slots), add));
}
void BgmvExpandSlice::forward_cpu(const Context& ctx, In x, const Stack& b, Indices slots, int64_t begin, bool add, Out y) {
  must(kernels::bgmv_expand_slice(ctx.kernel, view_of(x), view_of(b), output_of(y), view_of(slots), begin, b.rows, add));
}
void SgmvShrink::forward_cpu(const Context& ctx, In x, const Stack& a, const SlotSequences& s, float scaling, Out y) {
  must(kernels::sgmv_shrink(ctx.kernel, view_of(x), view_of(a), output_of(y), view_of(s.starts), view_of(s.lengths),
                            view_of(s.slots), s.slots.size(), s.max_length, s.rows, scaling));
}
void SgmvExpand::forward_cpu(const Context& ctx, In x, const Stack& b, const SlotSequences& s, bool add, Out y) {
  must(kernels::sgmv_expand(ctx.kernel, view_of(x), view_of(b), output_of(y), view_of(s.starts), view_of(s.lengths),
                            view_of(s.slots), s.slots.size(), s.max_length, s.rows, add));
}
void SgmvExpandSlice::forward_cpu(const Context& ctx, In x, const Stack& b, const SlotSequences& s, int64_t begin, bool add,
                                  Out y) {
  must(kernels::sgmv_expand_slice(ctx.kernel, view_of(x), view_of(b), output_of(y), view_of(s.starts), view_of(s.lengths),
                                  view_of(s.slots), s.slots.size(), s.max_length, s.rows, begin, b.rows, add));
}
void BgmvScale::forward_cpu(const Context& ctx, const Stack& factors, Indices slots, Out y) {
  const TensorView rows{factors.data, factors.dtype, {factors.count, factors.cols}, kCpuDevice};
  must(kernels::bgmv_scale(ctx.kernel, rows, output_of(y), view_of(slots)));
}

void BgmvShrink::forward_native(const Context& ctx, In x, const Stack& a, Indices slots, float scaling, Out y) {
  multiply(ctx, x, a, slots, 0, false, scaling, y);
}
void BgmvExpand::forward_native(const Context& ctx, In x, const Stack& b, Indices slots, bool add, Out y) {
  multiply(ctx, x, b, slots, 0, add, 1.0F, y);
}
void BgmvExpandSlice::forward_native(const Context& ctx, In x, const Stack& b, Indices slots, int64_t begin, bool add, Out y) {
  multiply(ctx, x, b, slots, begin, add, 1.0F, y);
}
void SgmvShrink::forward_native(const Context& ctx, In x, const Stack& a, const SlotSequences& s, float scaling, Out y) {
  multiply(ctx, x, a, s, 0, false, scaling, y);
}
void SgmvExpand::forward_native(const Context& ctx, In x, const Stack& b, const SlotSequences& s, bool add, Out y) {
  multiply(ctx, x, b, s, 0, add, 1.0F, y);
}
void SgmvExpandSlice::forward_native(const Context& ctx, In x, const Stack& b, const SlotSequences& s, int64_t begin, bool add,
                                     Out y) {
  multiply(ctx, x, b, s, begin, add, 1.0F, y);
}
void BgmvScale::forward_native(const Context&, const Stack& factors, Indices slots, Out y) {
  for (int64_t row = 0; row < slots.size(); ++row) {
    const int32_t slot = slots.host[row];
    if (slot < 0) continue;
    const auto* factor = reinterpret_cast<const float*>(factors.row(slot, 0));
    for (int64_t c = 0; c < y.cols; ++c) y.row(row)[c] *= factor[c];
  }
}

void LoRAShrink::forward_native(const Context& ctx, In x, std::span<const ShrinkSlice> slices, const RowSlots& slots,
                                float scaling) {
  for (const auto& slice : slices) {
    std::visit([&](const auto& said) { shrink(ctx, x, slice.a, said, scaling, slice.middle); }, slots);
  }
}
void LoRAExpand::forward_native(const Context& ctx, std::span<const ExpandSlice> slices, const RowSlots& slots, bool add, Out y) {
  for (const auto& slice : slices) {
    std::visit([&](const auto& said) { expand(ctx, slice.middle, slice.b, said, slice.begin, add, y); }, slots);
  }
}

// The CPU's own adapters are packed panels.
void LoRAShrink::forward_cpu(const Context& ctx, In x, std::span<const ShrinkSlice> slices, const RowSlots& slots,
                             float scaling) {
  forward_native(ctx, x, slices, slots, scaling);
}
void LoRAExpand::forward_cpu(const Context& ctx, std::span<const ExpandSlice> slices, const RowSlots& slots, bool add, Out y) {
  forward_native(ctx, slices, slots, add, y);
}

}  // namespace choral::platform::ops
