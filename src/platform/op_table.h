// The operators of one device. Layers call them through this table and know no kernel, so that a device moves in without
// touching layers or models. Each entry has a name, a semantic version, a rule for shapes, and the provider that serves it with
// the reason why it is that one (`choral doctor --ops`). All matrices are fp32 rows in the device's memory; index arrays come on
// both sides. Entries change only between steps, by their owner.
//
// The fused operators at the end are shorter ways to say what operators above say together; each can always be called, since
// without a provider it is that composition (composed_ops.cc). Whether a model is built with it is the fusion pass's decision.
// Those that make or take QuantisedBlocks are the CPU's own; other devices have no such entry (`run` is null).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kernels/attention/attention.h"
#include "kernels/gemm/packed_matrix.h"
#include "kernels/lora/lora_batch.h"
#include "kernels/rotary/rotary.h"
#include "platform/context.h"
#include "platform/op_profile.h"
#include "platform/op_shapes.h"

namespace choral::platform {

// An index array of the step, as the host reads it and as the device's operators do.
template <class T>
struct IndexArray {
  std::span<const T> host;
  const T* on_device = nullptr;

  IndexArray() = default;
  IndexArray(std::span<const T> values, const T* device) : host(values), on_device(device) {}
  int64_t size() const { return static_cast<int64_t>(host.size()); }
  IndexArray sub(int64_t begin, int64_t count) const {
    return {host.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
            on_device == nullptr ? nullptr : on_device + begin};
  }
};

// The step's sequences: as the host's attention reads them, and as the device placed them (Session::place_sequences).
struct SequenceBatch {
  std::span<const kernels::AttentionSequence> host;
  const void* on_device = nullptr;
  const int32_t* block_ids_on_device = nullptr;
  int64_t block_id_count = 0;
};

// A rotary table and its copy where the device's operators read it: [max_positions][cos: rotary_dim/2, sin: rotary_dim/2].
struct PlacedRotary {
  const kernels::RotaryTable& table;
  const float* on_device = nullptr;
};

template <class Signature>
struct Op;

template <class... Args>
struct Op<void(const Context&, Args...)> {
  using Run = void (*)(const Context&, Args...);

  Op(std::string_view op_name, ShapeRule shapes, bool is_fused = false, int op_version = 1)
      : name(op_name), version(op_version), fused(is_fused), meta(shapes) {}

  std::string_view name;
  int version;
  bool fused;
  ShapeRule meta;
  std::string provider;  // "cpu", "native", "composed", a plug-in's name; "cpu, staged" for the host's on copies
  std::string reason;    // why this one, when it is not what one would expect
  Run run = nullptr;

  void serve(Run function, std::string_view by, std::string_view why = {}) {
    run = function;
    provider = by;
    reason = why;
  }

  void operator()(const Context& ctx, Args... args) const {
    if (ctx.profile == nullptr) [[likely]]
      return run(ctx, args...);
    const double begin = now_s();
    run(ctx, args...);
    ctx.profile->add(name, now_s() - begin);
  }
};

struct OpFacts {
  std::string_view name;
  int version = 1;
  bool fused = false;
  std::string provider;
  std::string reason;
};

struct OpTable {
  using In = MatrixView<const float>;
  using Out = MatrixView<float>;
  using Weight = std::span<const float>;  // in the device's memory

  // y = x·Wᵀ with its epilogue. x [m, k], y [m, n]
  Op<void(const Context&, const kernels::PackedMatrix&, In, const kernels::Epilogue&, Out)> matmul{"matmul", shape_of::matmul};
  // what adapters add to a matmul: every middle = factor · scale · x·Aᵀ, then every y += B·middle
  Op<void(const Context&, std::span<const kernels::LoRAShrink>)> lora_shrink{"lora_shrink", shape_of::in_place};
  Op<void(const Context&, std::span<const kernels::LoRAExpand>)> lora_expand{"lora_expand", shape_of::in_place};
  // out row i = row ids[i] of W
  Op<void(const Context&, const kernels::PackedMatrix&, IndexArray<int32_t>, Out)> gather_rows{"gather_rows", shape_of::lookup};
  // out row i = row rows[i] of x
  Op<void(const Context&, In, IndexArray<int32_t>, Out)> take_rows{"take_rows", shape_of::lookup};
  // y += x
  Op<void(const Context&, In, Out)> add{"add", shape_of::same_as_first};
  // y = x·rsqrt(mean(x²) + eps)·w, row by row; x and y may be the same
  Op<void(const Context&, In, Weight, float, Out)> rms_norm{"rms_norm", shape_of::same_as_first};
  // the same for each run of w's size within a row: one head, in place
  Op<void(const Context&, Out, Weight, float)> rms_norm_heads{"rms_norm_heads", shape_of::per_head};
  // q and k are turned by their positions, in place. [tokens, heads·head_dim]
  Op<void(const Context&, const PlacedRotary&, IndexArray<int32_t>, Out, Out)> rotary_embedding{"rotary_embedding",
                                                                                                shape_of::in_place};
  // y = silu(left half of x)·(right half of x). x [m, 2n], y [m, n]
  Op<void(const Context&, In, Out)> silu_and_mul{"silu_and_mul", shape_of::gated};
  Op<void(const Context&, In, Out)> gelu_tanh_and_mul{"gelu_tanh_and_mul", shape_of::gated};
  // k and v rows go to their slots of the paged cache
  Op<void(const Context&, const kernels::KvCacheView&, In, In, IndexArray<int64_t>)> write_kv{"write_kv", shape_of::in_place};
  Op<void(const Context&, const kernels::AttentionParams&, In, const kernels::KvCacheView&, const SequenceBatch&, Out)>
      paged_attention{"paged_attention", shape_of::in_place};

  // residual += x; y = rms_norm(residual)
  Op<void(const Context&, In, Out, Weight, float, Out)> add_rms_norm{"add_rms_norm", shape_of::same_as_first, true};
  // each head of q and of k normed by its weight, then both turned
  Op<void(const Context&, const PlacedRotary&, IndexArray<int32_t>, Out, Weight, Out, Weight, float)> qk_norm_rope{
      "qk_norm_rope", shape_of::per_head, true};
  // q and k turned, k and v put into the cache
  Op<void(const Context&, const PlacedRotary&, IndexArray<int32_t>, Out, Out, In, const kernels::KvCacheView&,
          IndexArray<int64_t>)>
      rope_write_kv{"rope_write_kv", shape_of::in_place, true};

  // y = rms_norm(x), given as the planes that a quantised matmul reads and, unless its data is null, as floats
  Op<void(const Context&, In, Weight, float, kernels::QuantiseOptions, kernels::QuantisedBlock*, Out)> rms_norm_quantise{
      "rms_norm_quantise", shape_of::same_as_first, true};
  // the same of silu_and_mul
  Op<void(const Context&, In, kernels::QuantiseOptions, kernels::QuantisedBlock*, Out)> silu_and_mul_quantise{
      "silu_and_mul_quantise", shape_of::gated, true};
  // matmul of rows that were quantised before
  Op<void(const Context&, const kernels::PackedMatrix&, std::span<const kernels::QuantisedBlock>, const kernels::Epilogue&, Out)>
      matmul_quantised{"matmul_quantised", shape_of::matmul};

  // Calls visit(op) for every entry, in the order above.
  template <class Visit>
  void for_each(Visit visit) const {
    visit_all(*this, visit);
  }
  template <class Visit>
  void for_each(Visit visit) {
    visit_all(*this, visit);
  }
  std::vector<OpFacts> facts() const;

 private:
  template <class Table, class Visit>
  static void visit_all(Table& t, Visit& visit) {
    visit(t.matmul), visit(t.lora_shrink), visit(t.lora_expand), visit(t.gather_rows), visit(t.take_rows), visit(t.add);
    visit(t.rms_norm), visit(t.rms_norm_heads), visit(t.rotary_embedding), visit(t.silu_and_mul), visit(t.gelu_tanh_and_mul);
    visit(t.write_kv), visit(t.paged_attention), visit(t.add_rms_norm), visit(t.qk_norm_rope), visit(t.rope_write_kv);
    visit(t.rms_norm_quantise), visit(t.silu_and_mul_quantise), visit(t.matmul_quantised);
  }
};

}  // namespace choral::platform
