// Every operator, described once; op.h says what a descriptor is made of. forward_cpu stands in cpu_ops.cc, forward_native in
// native_ops.cc or, of the fused ones, composed_ops.cc, and both of those on adapters' stacks in stacked_ops.cc; oot_arguments in
// plugin/plugin_arguments.cc, conform in plugin/conformance_*.cc. To add one: docs/recipes/add-an-operator.md.
#pragma once

#include "base/status.h"
#include "platform/ops/arguments.h"
#include "platform/ops/op.h"

// What a plug-in's form is given: choral/plugin.h.
struct choral_matmul_args;
struct choral_lora_args;
struct choral_lora_slices_args;
struct choral_gather_rows_args;
struct choral_take_rows_args;
struct choral_unary_args;
struct choral_swigluoai_args;
struct choral_scale_args;
struct choral_bias_args;
struct choral_grouped_matmul_args;
struct choral_moe_combine_args;
struct choral_soft_cap_args;
struct choral_sample_args;
struct choral_rms_norm_args;
struct choral_rotary_args;
struct choral_write_kv_args;
struct choral_attention_args;

namespace choral::platform {

class Conformance;

namespace ops {

// y = x·Wᵀ with its epilogue. x [m, k], y [m, n]
struct Matmul : OpTraits {
  CHORAL_OP(matmul);
  static constexpr ShapeRule kShape = shape_of::matmul;
  using Call = void(const Context&, const PackedMatrix& w, In x, const Epilogue& epilogue, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_matmul_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// What adapters whose panels the host packed add to a matmul: every middle = factor · scale · x·Aᵀ, then every y += B·middle.
struct PackedLoRAShrink : OpTraits {
  CHORAL_OP(packed_lora_shrink);
  static constexpr std::string_view kHostsOwn = "adapters' panels are the host's";
  using Call = void(const Context&, std::span<const kernels::LoRAShrink> shrinks);
  static Call forward_cpu, forward_native;
};

struct PackedLoRAExpand : OpTraits {
  CHORAL_OP(packed_lora_expand);
  static constexpr std::string_view kHostsOwn = PackedLoRAShrink::kHostsOwn;
  using Call = void(const Context&, std::span<const kernels::LoRAExpand> expands);
  static Call forward_cpu, forward_native;
};

// What adapters add to queries that keys' projection was moved into: y += factor · scale · q·B·A of each head.
struct PackedLoRAAbsorb : OpTraits {
  CHORAL_OP(packed_lora_absorb);
  static constexpr std::string_view kHostsOwn = PackedLoRAShrink::kHostsOwn;
  using Call = void(const Context&, std::span<const kernels::LoRAAbsorb> items);
  static Call forward_cpu, forward_native;
};

// What adapters add on a device with memory of its own, from A [slots, r, in] and B [slots, out, r] of many, stacked in it. Rows
// are the device's as well; a row of slot -1 is neither read nor written. A slot for each row (bgmv) or for each sequence (sgmv),
// and both give a row the same bits.

// y = scaling · x·A[slot]ᵀ. x [rows, in], y [rows, r]
struct BgmvShrink : OpTraits {
  CHORAL_OP(bgmv_shrink);
  static constexpr bool kOnStacks = true;
  using Call = void(const Context&, In x, const Stack& a, Indices slots, float scaling, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_lora_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// y (+)= x·B[slot]ᵀ. x [rows, r], y [rows, out]
struct BgmvExpand : OpTraits {
  CHORAL_OP(bgmv_expand);
  static constexpr bool kOnStacks = true;
  using Call = void(const Context&, In x, const Stack& b, Indices slots, bool add, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_lora_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// The same for columns [begin, begin + out) of y.
struct BgmvExpandSlice : OpTraits {
  CHORAL_OP(bgmv_expand_slice);
  static constexpr bool kOnStacks = true;
  using Call = void(const Context&, In x, const Stack& b, Indices slots, int64_t begin, bool add, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_lora_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

struct SgmvShrink : OpTraits {
  CHORAL_OP(sgmv_shrink);
  static constexpr bool kOnStacks = true;
  using Call = void(const Context&, In x, const Stack& a, const SlotSequences& sequences, float scaling, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_lora_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

struct SgmvExpand : OpTraits {
  CHORAL_OP(sgmv_expand);
  static constexpr bool kOnStacks = true;
  using Call = void(const Context&, In x, const Stack& b, const SlotSequences& sequences, bool add, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_lora_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

struct SgmvExpandSlice : OpTraits {
  CHORAL_OP(sgmv_expand_slice);
  static constexpr bool kOnStacks = true;
  using Call = void(const Context&, In x, const Stack& b, const SlotSequences& sequences, int64_t begin, bool add, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_lora_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// y *= factors[slot], value by value: DoRA. factors [slots, 1, cols] in float32, y [rows, cols]
struct BgmvScale : OpTraits {
  CHORAL_OP(bgmv_scale);
  static constexpr bool kOnStacks = true;
  using Call = void(const Context&, const Stack& factors, Indices slots, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_lora_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// out row i = row ids[i] of W
struct GatherRows : OpTraits {
  CHORAL_OP(gather_rows);
  using Call = void(const Context&, const PackedMatrix& w, Indices ids, Out out);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_gather_rows_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// out row i = row rows[i] of x
struct TakeRows : OpTraits {
  CHORAL_OP(take_rows);
  using Call = void(const Context&, In x, Indices rows, Out out);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_take_rows_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// y += x
struct Add : OpTraits {
  CHORAL_OP(add);
  static constexpr ShapeRule kShape = shape_of::same_as_first;
  using Call = void(const Context&, In x, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_unary_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// every row of y += bias
struct AddBias : OpTraits {
  CHORAL_OP(add_bias);
  using Call = void(const Context&, Weight bias, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_bias_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// x = factor·x
struct Scale : OpTraits {
  CHORAL_OP(scale);
  using Call = void(const Context&, Out x, float factor);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_scale_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// row i *= scale at positions[i] (kernels/activation/row_changes.h)
struct ScaleByPosition : OpTraits {
  CHORAL_OP(scale_by_position);
  static constexpr std::string_view kHostsOwn = "few families have it";
  using Call = void(const Context&, const PositionScale& scale, Indices positions, Out x);
  static Call forward_cpu, forward_native;
};

// y = x - mean(x), row by row; x and y may be the same
struct SubtractMean : OpTraits {
  CHORAL_OP(subtract_mean);
  static constexpr std::string_view kHostsOwn = ScaleByPosition::kHostsOwn;
  static constexpr ShapeRule kShape = shape_of::same_as_first;
  using Call = void(const Context&, In x, Out y);
  static Call forward_cpu, forward_native;
};

// The experts of each row and their weights, from the router's logits (kernels/fused/moe_gating.h). ids, weights [rows, top_k]
struct MoeGating : OpTraits {
  CHORAL_OP(moe_gating);
  static constexpr std::string_view kHostsOwn = "the host sorts rows by expert";
  using Call = void(const Context&, In logits, const kernels::MoeGating& gating, MatrixView<int32_t> ids, Out weights);
  static Call forward_cpu, forward_native;
};

// y (+)= Σ_s weights[t, s]·x[places[t·slots + s]]: experts' rows back to their tokens (kernels/fused/expert_rows.h)
struct MoeCombine : OpTraits {
  CHORAL_OP(moe_combine);
  using Call = void(const Context&, In x, Indices places, In weights, bool add, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_moe_combine_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// x = cap·tanh(x / cap), cap > 0
struct SoftCap : OpTraits {
  CHORAL_OP(soft_cap);
  using Call = void(const Context&, Out x, float cap);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_soft_cap_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// A token of each row of logits, by the row's own rule (kernels/sampling/sampled_rows.h). The logits may be changed.
struct Sample : OpTraits {
  CHORAL_OP(sample);
  using Call = void(const Context&, Out logits, const SamplingBatch& batch);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_sample_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// y = x·rsqrt(mean(x²) + eps)·w, row by row; x and y may be the same
struct RmsNorm : OpTraits {
  CHORAL_OP(rms_norm);
  static constexpr ShapeRule kShape = shape_of::same_as_first;
  using Call = void(const Context&, In x, Weight w, float eps, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_rms_norm_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// The same for each run of w's size within a row: one head, in place.
struct RmsNormHeads : OpTraits {
  CHORAL_OP(rms_norm_heads);
  static constexpr ShapeRule kShape = shape_of::per_head;
  using Call = void(const Context&, Out x, Weight w, float eps);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_rms_norm_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// q and k are turned by their positions, in place. [tokens, heads·head_dim]
struct RotaryEmbedding : OpTraits {
  CHORAL_OP(rotary_embedding);
  using Call = void(const Context&, const PlacedRotary& rotary, Indices positions, Out q, Out k);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_rotary_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// y = silu(left half of x)·(right half of x). x [m, 2n], y [m, n]
struct SiluAndMul : OpTraits {
  CHORAL_OP(silu_and_mul);
  static constexpr ShapeRule kShape = shape_of::gated;
  using Call = void(const Context&, In x, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_unary_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

struct GeluTanhAndMul : OpTraits {
  CHORAL_OP(gelu_tanh_and_mul);
  static constexpr ShapeRule kShape = shape_of::gated;
  using Call = void(const Context&, In x, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_unary_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// y = (clamp(up, ±limit) + 1)·g·sigmoid(alpha·g), g = min(gate, limit), of gates and ups in turns. x [m, 2n], y [m, n]
struct SwigluOaiAndMul : OpTraits {
  CHORAL_OP(swigluoai_and_mul);
  static constexpr ShapeRule kShape = shape_of::gated;
  using Call = void(const Context&, In x, const ClampedSwiglu& form, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_swigluoai_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// y = act(gate)·y. gate [m, n], or [m, 1] for whole rows; y [m, n]
struct GateRows : OpTraits {
  CHORAL_OP(gate_rows);
  static constexpr std::string_view kHostsOwn = "the plug-in interface has no gate of rows yet";
  using Call = void(const Context&, In gate, kernels::Activation act, Out y);
  static Call forward_cpu, forward_native;
};

// A causal convolution and silu, in place, with the rows of earlier steps in a slot (kernels/recurrent/causal_conv1d.h)
struct CausalConv1d : OpTraits {
  CHORAL_OP(causal_conv1d);
  static constexpr std::string_view kHostsOwn = "states of sequences are the host's";
  using Call = void(const Context&, const kernels::CausalConv& conv, const kernels::StateView& tails, Runs runs, Out x);
  static Call forward_cpu, forward_native;
};

// The recurrence of a gated delta net over the states of sequences (kernels/recurrent/gated_delta_rule.h)
struct GatedDeltaRule : OpTraits {
  CHORAL_OP(gated_delta_rule);
  static constexpr std::string_view kHostsOwn = CausalConv1d::kHostsOwn;
  using Call = void(const Context&, const kernels::DeltaRule& rule, const kernels::StateView& states, Runs runs, Out qkv, In ba,
                    Out out);
  static Call forward_cpu, forward_native;
};

// The recurrence of a Mamba-2 layer over the states of sequences (kernels/recurrent/selective_scan.h)
struct SelectiveScan : OpTraits {
  CHORAL_OP(selective_scan);
  static constexpr std::string_view kHostsOwn = CausalConv1d::kHostsOwn;
  using Call = void(const Context&, const kernels::SelectiveScan& scan, const kernels::StateView& states, Runs runs, In xbc,
                    In dt, Out out);
  static Call forward_cpu, forward_native;
};

// k and v rows go to their slots of the paged cache; v is empty where values lie in the keys.
struct WriteKv : OpTraits {
  CHORAL_OP(write_kv);
  static constexpr bool kOnCache = true;
  using Call = void(const Context&, const KvCacheView& cache, In k, In v, Slots slots);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_write_kv_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// Attention over the cache. q [tokens, heads·head_dim], sinks [heads] or empty (params has none), out [tokens, heads·v_head_dim]
struct PagedAttention : OpTraits {
  CHORAL_OP(paged_attention);
  static constexpr bool kOnCache = true;
  using Call = void(const Context&, const AttentionParams& params, In q, const KvCacheView& cache, const SequenceBatch& sequences,
                    Weight sinks, Out out);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_attention_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// The fused operators are shorter ways to say what operators above say together; each can always be called, since without a
// provider it is that composition. Whether a model is built with it is the fusion pass's decision.

// residual += x; y = rms_norm(residual)
struct AddRmsNorm : OpTraits {
  CHORAL_OP(add_rms_norm);
  static constexpr ShapeRule kShape = shape_of::same_as_first;
  static constexpr bool kFused = true;
  using Call = void(const Context&, In x, Out residual, Weight w, float eps, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_rms_norm_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// residual += x; y = rms_norm(residual) + bias
struct AddRmsNormBias : OpTraits {
  CHORAL_OP(add_rms_norm_bias);
  static constexpr ShapeRule kShape = shape_of::same_as_first;
  static constexpr bool kFused = true;
  using Call = void(const Context&, In x, Out residual, Weight w, Weight bias, float eps, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_rms_norm_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// each head of q and of k normed by its weight, then both turned
struct QkNormRope : OpTraits {
  CHORAL_OP(qk_norm_rope);
  static constexpr ShapeRule kShape = shape_of::per_head;
  static constexpr bool kFused = true;
  using Call = void(const Context&, const PlacedRotary& rotary, Indices positions, Out q, Weight q_weight, Out k, Weight k_weight,
                    float eps);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_rotary_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// q and k turned, k and v put into the cache
struct RopeWriteKv : OpTraits {
  CHORAL_OP(rope_write_kv);
  static constexpr bool kFused = true, kOnCache = true;
  using Call = void(const Context&, const PlacedRotary& rotary, Indices positions, Out q, Out k, In v, const KvCacheView& cache,
                    Slots slots);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_rotary_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// the matmul of each product: several matrices at once, each with rows of its own
struct GroupedMatmul : OpTraits {
  CHORAL_OP(grouped_matmul);
  static constexpr bool kFused = true;
  using Call = void(const Context&, std::span<const kernels::GroupProduct> products);
  static Call forward_cpu, forward_native;
  static choral_grouped_matmul_args oot_arguments(std::span<const choral_matmul_args> products);
  static Status conform(Conformance&);
};

// Of projections that share x, or y, in one: every middle = scaling · x·A[slot]ᵀ, then every y (+)= middle·B[slot]ᵀ in its
// columns.
struct LoRAShrink : OpTraits {
  CHORAL_OP(lora_shrink);
  static constexpr bool kFused = true, kOnStacks = true;
  using Call = void(const Context&, In x, std::span<const ShrinkSlice> slices, const RowSlots& slots, float scaling);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_lora_slices_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

struct LoRAExpand : OpTraits {
  CHORAL_OP(lora_expand);
  static constexpr bool kFused = true, kOnStacks = true;
  using Call = void(const Context&, std::span<const ExpandSlice> slices, const RowSlots& slots, bool add, Out y);
  static Call forward_cpu, forward_native;
  static OotArguments<choral_lora_slices_args, Call> oot_arguments;
  static Status conform(Conformance&);
};

// Those that make or take QuantisedRows.

// y = rms_norm(x) (+ bias), given as a quantised matmul reads it and, unless its data is null, as floats
struct RmsNormQuantise : OpTraits {
  CHORAL_OP(rms_norm_quantise);
  static constexpr ShapeRule kShape = shape_of::same_as_first;
  static constexpr bool kFused = true, kCpuOnly = true;
  static constexpr std::string_view kHostsOwn = "these rows are the CPU's";
  using Call = void(const Context&, In x, Weight w, Weight bias, float eps, const QuantisedRows& out, Out y);
  static Call forward_cpu;
};

// the same of silu_and_mul
struct SiluAndMulQuantise : OpTraits {
  CHORAL_OP(silu_and_mul_quantise);
  static constexpr ShapeRule kShape = shape_of::gated;
  static constexpr bool kFused = true, kCpuOnly = true;
  static constexpr std::string_view kHostsOwn = RmsNormQuantise::kHostsOwn;
  using Call = void(const Context&, In x, const QuantisedRows& out, Out y);
  static Call forward_cpu;
};

// matmul of rows that were quantised before
struct MatmulQuantised : OpTraits {
  CHORAL_OP(matmul_quantised);
  static constexpr ShapeRule kShape = shape_of::matmul;
  static constexpr bool kCpuOnly = true;
  static constexpr std::string_view kHostsOwn = RmsNormQuantise::kHostsOwn;
  using Call = void(const Context&, const PackedMatrix& w, const QuantisedRows& x, const Epilogue& epilogue, Out y);
  static Call forward_cpu;
};

}  // namespace ops

// In the order in which tables are shown.
using AllOps =
    OpList<ops::Matmul, ops::PackedLoRAShrink, ops::PackedLoRAExpand, ops::PackedLoRAAbsorb, ops::BgmvShrink, ops::BgmvExpand,
           ops::BgmvExpandSlice, ops::SgmvShrink, ops::SgmvExpand, ops::SgmvExpandSlice, ops::BgmvScale, ops::GatherRows,
           ops::TakeRows, ops::Add, ops::AddBias, ops::Scale, ops::ScaleByPosition, ops::SubtractMean, ops::MoeGating,
           ops::MoeCombine, ops::SoftCap, ops::Sample, ops::RmsNorm, ops::RmsNormHeads, ops::RotaryEmbedding, ops::SiluAndMul,
           ops::GeluTanhAndMul, ops::SwigluOaiAndMul, ops::GateRows, ops::CausalConv1d, ops::GatedDeltaRule, ops::SelectiveScan,
           ops::WriteKv, ops::PagedAttention, ops::AddRmsNorm, ops::AddRmsNormBias, ops::QkNormRope, ops::RopeWriteKv,
           ops::GroupedMatmul, ops::LoRAShrink, ops::LoRAExpand, ops::RmsNormQuantise, ops::SiluAndMulQuantise,
           ops::MatmulQuantised>;

template <class D>
inline constexpr OpId kOpId = AllOps::id<D>();

}  // namespace choral::platform
