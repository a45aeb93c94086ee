// What an operator is called with, as choral/plugin.h spells it.
#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "base/check.h"
#include "platform/ops/operators.h"
#include "platform/plugin/plugin_device.h"
#include "platform/plugin/plugin_host.h"

namespace choral::platform::ops {
namespace {

choral_matrix matrix(In m) {
  return {
      .data = const_cast<float*>(m.data), .rows = m.rows, .cols = m.cols, .stride = m.stride, .dtype = CHORAL_F32, .reserved = 0};
}

choral_vector vector(Weight w) { return {.data = w.data(), .size = std::ssize(w), .dtype = CHORAL_F32, .reserved = 0}; }

const choral_packed* packed(const PackedMatrix& w) { return static_cast<const PluginMatrix&>(w).handle(); }

choral_kv_cache kv_cache(const KvCacheView& cache) {
  return {.keys = cache.keys,
          .values = cache.values,
          .dtype = static_cast<int32_t>(cache.dtype),
          .block_tokens = static_cast<int32_t>(kernels::kKvBlockTokens),
          .blocks = cache.num_blocks,
          .kv_heads = cache.kv_heads,
          .head_dim = cache.head_dim,
          .v_head_dim = cache.v_head_dim};
}

choral_lora_stack lora_stack(const Stack& stack) {
  return {.data = stack.data,
          .slots = stack.count,
          .rows = stack.rows,
          .cols = stack.cols,
          .dtype = static_cast<int32_t>(stack.dtype),
          .reserved = 0};
}

choral_lora_args on_stack(const Stack& stack, Out y) {
  auto args = with_header<choral_lora_args>();
  args.stack = lora_stack(stack);
  args.y = matrix(y);
  args.ranks = stack.ranks.on_device;
  return args;
}

choral_lora_args by_row(In x, const Stack& stack, Indices slots, Out y) {
  auto args = on_stack(stack, y);
  args.x = matrix(x);
  args.slot_of = slots.on_device;
  return args;
}

choral_lora_args by_sequence(In x, const Stack& stack, const SlotSequences& sequences, Out y) {
  auto args = by_row(x, stack, sequences.slots, y);
  args.starts = sequences.starts.on_device;
  args.lengths = sequences.lengths.on_device;
  args.sequence_count = sequences.slots.size();
  args.max_length = sequences.max_length;
  return args;
}

choral_lora_args shrink(choral_lora_args args, float scaling) {
  args.scaling = scaling;
  return args;
}

choral_lora_args expand(choral_lora_args args, int64_t begin, bool add) {
  args.slice_begin = begin;
  args.add = add ? 1 : 0;
  return args;
}

void name_rows(choral_lora_slices_args& args, Indices slots) { args.slot_of = slots.on_device; }
void name_rows(choral_lora_slices_args& args, const SlotSequences& sequences) {
  args.slot_of = sequences.slots.on_device;
  args.starts = sequences.starts.on_device;
  args.lengths = sequences.lengths.on_device;
  args.sequence_count = sequences.slots.size();
  args.max_length = sequences.max_length;
}

static_assert(kMostLoRASlices == CHORAL_LORA_SLICES);

// The rows and, by `of`, the slices; the rest is the caller's.
template <class Slice, class Of>
choral_lora_slices_args on_slices(std::span<const Slice> slices, const RowSlots& slots, Of of) {
  CHORAL_CHECK(slices.size() <= kMostLoRASlices, "more projections at once than the operator takes");
  auto args = with_header<choral_lora_slices_args>();
  std::visit([&](const auto& said) { name_rows(args, said); }, slots);
  args.slice_count = std::ssize(slices);
  std::transform(slices.begin(), slices.end(), args.slices, of);
  return args;
}

choral_lora_slice lora_slice(const Stack& stack, In middle, int64_t begin) {
  return {.stack = lora_stack(stack), .ranks = stack.ranks.on_device, .middle = matrix(middle), .y_begin = begin};
}

// Lists of sampling are given as they are.
template <class Ours, class Theirs>
constexpr bool kSameBytes = sizeof(Ours) == sizeof(Theirs) &&
                            alignof(Ours) == alignof(Theirs) && std::is_trivially_copyable_v<Ours>;
static_assert(kSameBytes<kernels::RowSampling, choral_sampling_row> &&
              offsetof(kernels::RowSampling, vocab) == offsetof(choral_sampling_row, vocab) &&
              offsetof(kernels::RowSampling, named_begin) == offsetof(choral_sampling_row, named_begin));
static_assert(kSameBytes<kernels::LogitEdit, choral_logit_edit> &&
              offsetof(kernels::LogitEdit, presence) == offsetof(choral_logit_edit, presence));
static_assert(kSameBytes<kernels::RowChoice, choral_sampled_row> &&
              offsetof(kernels::RowChoice, logprob) == offsetof(choral_sampled_row, logprob));
static_assert(kSameBytes<kernels::TokenLogprob, choral_token_logprob>);

choral_unary_args unary(In x, Out y) {
  auto args = with_header<choral_unary_args>();
  args.x = matrix(x);
  args.y = matrix(y);
  return args;
}

choral_rms_norm_args norm(In x, Weight w, float eps, In y) {
  auto args = with_header<choral_rms_norm_args>();
  args.x = matrix(x);
  args.y = matrix(y);
  args.weight = vector(w);
  args.eps = eps;
  return args;
}

}  // namespace

// Without the epilogue's hooks, which are the host's (plugin_ops.cc).
choral_matmul_args Matmul::oot_arguments(const PackedMatrix& w, In x, const Epilogue& epilogue, Out y) {
  auto args = with_header<choral_matmul_args>();
  args.weight = packed(w);
  args.x = matrix(x);
  args.y = matrix(y);
  if (epilogue.bias != nullptr) args.bias = vector({epilogue.bias, static_cast<size_t>(y.cols)});
  args.accumulate = epilogue.accumulate ? 1 : 0;
  return args;
}

choral_lora_args BgmvShrink::oot_arguments(In x, const Stack& a, Indices slots, float scaling, Out y) {
  return shrink(by_row(x, a, slots, y), scaling);
}
choral_lora_args BgmvExpand::oot_arguments(In x, const Stack& b, Indices slots, bool add, Out y) {
  return expand(by_row(x, b, slots, y), 0, add);
}
choral_lora_args BgmvExpandSlice::oot_arguments(In x, const Stack& b, Indices slots, int64_t begin, bool add, Out y) {
  return expand(by_row(x, b, slots, y), begin, add);
}
choral_lora_args SgmvShrink::oot_arguments(In x, const Stack& a, const SlotSequences& sequences, float scaling, Out y) {
  return shrink(by_sequence(x, a, sequences, y), scaling);
}
choral_lora_args SgmvExpand::oot_arguments(In x, const Stack& b, const SlotSequences& sequences, bool add, Out y) {
  return expand(by_sequence(x, b, sequences, y), 0, add);
}
choral_lora_args SgmvExpandSlice::oot_arguments(In x, const Stack& b, const SlotSequences& sequences, int64_t begin, bool add,
                                                Out y) {
  return expand(by_sequence(x, b, sequences, y), begin, add);
}
choral_lora_args BgmvScale::oot_arguments(const Stack& factors, Indices slots, Out y) {
  auto args = on_stack(factors, y);
  args.slot_of = slots.on_device;
  return args;
}

choral_lora_slices_args LoRAShrink::oot_arguments(In x, std::span<const ShrinkSlice> slices, const RowSlots& slots,
                                                  float scaling) {
  auto args = on_slices(slices, slots, [](const ShrinkSlice& slice) { return lora_slice(slice.a, slice.middle, 0); });
  args.x = matrix(x);
  args.scaling = scaling;
  return args;
}
choral_lora_slices_args LoRAExpand::oot_arguments(std::span<const ExpandSlice> slices, const RowSlots& slots, bool add, Out y) {
  auto args = on_slices(slices, slots, [](const ExpandSlice& slice) { return lora_slice(slice.b, slice.middle, slice.begin); });
  args.y = matrix(y);
  args.add = add ? 1 : 0;
  return args;
}

choral_gather_rows_args GatherRows::oot_arguments(const PackedMatrix& w, Indices ids, Out out) {
  auto args = with_header<choral_gather_rows_args>();
  args.weight = packed(w);
  args.ids = ids.on_device;
  args.out = matrix(out);
  return args;
}

choral_take_rows_args TakeRows::oot_arguments(In x, Indices rows, Out out) {
  auto args = with_header<choral_take_rows_args>();
  args.x = matrix(x);
  args.rows = rows.on_device;
  args.out = matrix(out);
  return args;
}

choral_unary_args Add::oot_arguments(In x, Out y) { return unary(x, y); }
choral_unary_args SiluAndMul::oot_arguments(In x, Out y) { return unary(x, y); }
choral_unary_args GeluTanhAndMul::oot_arguments(In x, Out y) { return unary(x, y); }

choral_swigluoai_args SwigluOaiAndMul::oot_arguments(In x, const ClampedSwiglu& form, Out y) {
  auto args = with_header<choral_swigluoai_args>();
  args.x = matrix(x);
  args.y = matrix(y);
  args.alpha = form.alpha;
  args.limit = form.limit;
  return args;
}

choral_scale_args Scale::oot_arguments(Out x, float factor) {
  auto args = with_header<choral_scale_args>();
  args.y = matrix(x);
  args.factor = factor;
  return args;
}

choral_grouped_matmul_args GroupedMatmul::oot_arguments(std::span<const choral_matmul_args> products) {
  auto args = with_header<choral_grouped_matmul_args>();
  args.products = products.data();
  args.product_count = std::ssize(products);
  return args;
}

choral_moe_combine_args MoeCombine::oot_arguments(In x, Indices places, In weights, bool add, Out y) {
  auto args = with_header<choral_moe_combine_args>();
  args.x = matrix(x);
  args.places = places.on_device;
  args.weights = matrix(weights);
  args.y = matrix(y);
  args.add = add ? 1 : 0;
  return args;
}

choral_soft_cap_args SoftCap::oot_arguments(Out x, float cap) {
  auto args = with_header<choral_soft_cap_args>();
  args.y = matrix(x);
  args.cap = cap;
  return args;
}

choral_sample_args Sample::oot_arguments(Out logits, const SamplingBatch& batch) {
  auto args = with_header<choral_sample_args>();
  args.logits = matrix(logits);
  args.rows = reinterpret_cast<const choral_sampling_row*>(batch.rows.on_device);
  args.edits = reinterpret_cast<const choral_logit_edit*>(batch.edits.on_device);
  args.edit_count = batch.edits.size();
  args.mask_words = batch.mask_words.on_device;
  args.mask_word_count = batch.mask_words.size();
  args.named = batch.named.on_device;
  args.named_count = batch.named.size();
  args.sampled = reinterpret_cast<choral_sampled_row*>(batch.choices.data());
  args.top = reinterpret_cast<choral_token_logprob*>(batch.top.data());
  args.top_count = std::ssize(batch.top);
  return args;
}

choral_bias_args AddBias::oot_arguments(Weight bias, Out y) {
  auto args = with_header<choral_bias_args>();
  args.y = matrix(y);
  args.bias = vector(bias);
  return args;
}

choral_rms_norm_args RmsNorm::oot_arguments(In x, Weight w, float eps, Out y) { return norm(x, w, eps, y); }
choral_rms_norm_args RmsNormHeads::oot_arguments(Out x, Weight w, float eps) { return norm(x, w, eps, x); }

choral_rms_norm_args AddRmsNorm::oot_arguments(In x, Out residual, Weight w, float eps, Out y) {
  auto args = norm(x, w, eps, y);
  args.residual = matrix(residual);
  return args;
}

choral_rms_norm_args AddRmsNormBias::oot_arguments(In x, Out residual, Weight w, Weight bias, float eps, Out y) {
  auto args = AddRmsNorm::oot_arguments(x, residual, w, eps, y);
  args.bias = vector(bias);
  return args;
}

choral_rotary_args RotaryEmbedding::oot_arguments(const PlacedRotary& rotary, Indices positions, Out q, Out k) {
  auto args = with_header<choral_rotary_args>();
  args.table = {.cos_sin = rotary.on_device,
                .head_dim = rotary.table.head_dim(),
                .rotary_dim = rotary.table.rotary_dim(),
                .max_positions = rotary.table.max_positions(),
                .interleaved = rotary.table.interleaved() ? 1 : 0,
                .reserved = 0};
  args.positions = positions.on_device;
  args.q = matrix(q);
  args.k = matrix(k);
  return args;
}

choral_rotary_args QkNormRope::oot_arguments(const PlacedRotary& rotary, Indices positions, Out q, Weight q_weight, Out k,
                                             Weight k_weight, float eps) {
  auto args = RotaryEmbedding::oot_arguments(rotary, positions, q, k);
  args.q_weight = vector(q_weight);
  args.k_weight = vector(k_weight);
  args.eps = eps;
  return args;
}

choral_rotary_args RopeWriteKv::oot_arguments(const PlacedRotary& rotary, Indices positions, Out q, Out k, In v,
                                              const KvCacheView& cache, Slots slots) {
  auto args = RotaryEmbedding::oot_arguments(rotary, positions, q, k);
  args.v = matrix(v);
  args.cache = kv_cache(cache);
  args.slots = slots.on_device;
  return args;
}

choral_write_kv_args WriteKv::oot_arguments(const KvCacheView& cache, In k, In v, Slots slots) {
  auto args = with_header<choral_write_kv_args>();
  args.cache = kv_cache(cache);
  args.k = matrix(k);
  args.v = matrix(v);
  args.slots = slots.on_device;
  return args;
}

choral_attention_args PagedAttention::oot_arguments(const AttentionParams& params, In q, const KvCacheView& cache,
                                                    const SequenceBatch& sequences, Weight sinks, Out out) {
  auto args = with_header<choral_attention_args>();
  args.cache = kv_cache(cache);
  args.q = matrix(q);
  args.out = matrix(out);
  args.heads = params.heads;
  args.scale = params.scale;
  args.softcap = params.softcap;
  args.sliding_window = params.sliding_window;
  args.sequences = static_cast<const choral_sequence*>(sequences.on_device);
  args.sequence_count = std::ssize(sequences.host);
  args.block_ids = sequences.block_ids_on_device;
  args.block_id_count = sequences.block_id_count;
  args.sinks = vector(sinks);
  return args;
}

}  // namespace choral::platform::ops
