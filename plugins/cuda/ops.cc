// Each operator: the rules of its arguments, the scratch that it wants, the kernels that do it.
#include <iterator>
#include <span>
#include <type_traits>

#include "arguments.h"
#include "device.h"
#include "plugin_table.h"
#include "structs.h"

namespace choral_cuda {
namespace {

template <const auto& kOp>
cudaError_t launch(const Launch& launch, const void* args) {
  return kOp.launch(launch, *static_cast<const typename std::remove_cvref_t<decltype(kOp)>::Arguments*>(args));
}

// On the stream's list, where the arguments are a struct of the interface, which holds values and device pointers. What points to
// the host's memory can't be kept, and is launched behind the list.
template <const auto& kOp, class Args>
cudaError_t call(choral_device* device, choral_stream* stream, const Args& args) {
  if constexpr (requires { args.header; }) {
    static_assert(sizeof args + sizeof(PackedWeight) <= CallList::kMostCallBytes);
    OpCall kept{kOp.name, launch<kOp>, std::as_bytes(std::span(&args, 1)), {}};
    if constexpr (requires { args.weight->weight; }) kept.weight = std::as_bytes(std::span(&args.weight->weight, 1));
    return stream->graphs.run(kept, device->launch_on(stream));
  } else {
    device->end_list(stream);
    return kOp.launch(device->launch_on(stream), args);
  }
}

template <class Args>
struct Operator {
  using Arguments = Args;
  const char* name;
  void (*rules)(Rules&, const Args&);
  int64_t (*rows)(const Args&);  // 0: there is nothing to do
  cudaError_t (*launch)(const Launch&, const Args&);
  size_t (*scratch_bytes)(const Args&) = [](const Args&) -> size_t { return 0; };
};

template <const auto& kOp>
using ArgumentsOf = typename std::remove_cvref_t<decltype(kOp)>::Arguments;

template <const auto& kOp>
choral_status* queue(choral_device* device, choral_stream* stream, const ArgumentsOf<kOp>& args) {
  Rules rules(kOp.name);
  kOp.rules(rules, args);
  if (rules.status() != nullptr) return rules.status();
  CUDA_TRY(device->enter(kOp.name));
  if (kOp.rows(args) == 0) return nullptr;
  CUDA_TRY(device->reserve_scratch(stream, kOp.scratch_bytes(args)));
  return device->check(call<kOp>(device, stream, args), kOp.name);
}

template <const auto& kOp>
choral_status* run(choral_device* device, choral_stream* stream, const void* given) {
  return queue<kOp>(device, stream, read<ArgumentsOf<kOp>>(given));
}

template <const auto& kOp>
constexpr choral_op entry(choral_op_fn call = run<kOp>) {
  return {CHORAL_HEADER(choral_op), kOp.name, 1, 0, call};
}

// ---- Weights.

void matmul_rules(Rules& rules, const choral_matmul_args& a) {
  rules.array(a.weight, 1, "the weight");
  rules.matrix(a.x, "x");
  rules.matrix(a.y, "y");
  if (rules.status() != nullptr) return;
  const PackedWeight& w = a.weight->weight;
  rules.expect(a.x.cols == w.cols && a.y.cols == w.rows && a.x.rows == a.y.rows, "x [m, k], W [n, k] and y [m, n] do not fit");
  if (a.bias.data != nullptr) rules.vector(a.bias, w.rows, "the bias");
}
constexpr Operator<choral_matmul_args> kMatmul{
    "matmul", matmul_rules, [](const choral_matmul_args& a) { return a.x.rows; },
    [](const Launch& launch, const choral_matmul_args& a) { return matmul(launch, a.weight->weight, a); },
    [](const choral_matmul_args& a) { return matmul_scratch_bytes(a.weight->weight, a.x.rows); }};

using GroupedProducts = std::span<const GroupedProduct>;

constexpr Operator<GroupedProducts> kGroupedMatmul{
    "grouped_matmul",
    [](Rules& rules, const GroupedProducts& products) {
      for (const GroupedProduct& product : products) matmul_rules(rules, product.args);
    },
    [](const GroupedProducts& products) { return static_cast<int64_t>(products.size()); },
    [](const Launch& launch, const GroupedProducts& products) { return grouped_matmul(launch, products); },
    [](const GroupedProducts& products) { return grouped_matmul_scratch_bytes(products); }};

choral_status* run_grouped(choral_device* device, choral_stream* stream, const void* given) {
  const auto a = read<choral_grouped_matmul_args>(given);
  Rules rules(kGroupedMatmul.name);
  rules.array(a.products, a.product_count, "the list of products");
  if (rules.status() != nullptr || a.product_count == 0) return rules.status();
  return without_exceptions(kGroupedMatmul.name, [&] {
    auto& products = device->grouped;
    products.resize(static_cast<size_t>(a.product_count));
    const auto* at = reinterpret_cast<const char*>(a.products);
    for (auto& [weight, args] : products) {
      args = read<choral_matmul_args>(at);
      weight = args.weight == nullptr ? nullptr : &args.weight->weight;
      at += a.products->header.struct_size;
    }
    return queue<kGroupedMatmul>(device, stream, products);
  });
}

void gather_rules(Rules& rules, const choral_gather_rows_args& a) {
  rules.array(a.weight, 1, "the weight");
  rules.matrix(a.out, "out");
  rules.array(a.ids, a.out.rows, "the list of ids");
  if (rules.status() == nullptr) rules.expect(a.out.cols == a.weight->weight.cols, "out is as wide as W");
}
constexpr Operator<choral_gather_rows_args> kGatherRows{
    "gather_rows", gather_rules, [](const choral_gather_rows_args& a) { return a.out.rows; },
    [](const Launch& launch, const choral_gather_rows_args& a) { return gather_rows(launch, a.weight->weight, a); }};

// ---- Rows.

void take_rules(Rules& rules, const choral_take_rows_args& a) {
  rules.matrix(a.x, "x");
  rules.matrix(a.out, "out");
  rules.array(a.rows, a.out.rows, "the list of rows");
  rules.expect(a.x.cols == a.out.cols, "out is as wide as x");
}
constexpr Operator<choral_take_rows_args> kTakeRows{"take_rows", take_rules,
                                                    [](const choral_take_rows_args& a) { return a.out.rows; }, take_rows};

void combine_rules(Rules& rules, const choral_moe_combine_args& a) {
  rules.matrix(a.x, "x");
  rules.matrix(a.weights, "the weights");
  rules.matrix(a.y, "y");
  rules.expect(a.x.cols == a.y.cols && a.weights.rows == a.y.rows, "x [any, n], weights [m, slots] and y [m, n] do not fit");
  if (a.weights.cols > 0) rules.array(a.places, a.y.rows, "the list of places");
}
constexpr Operator<choral_moe_combine_args> kMoeCombine{"moe_combine", combine_rules,
                                                        [](const choral_moe_combine_args& a) { return a.y.rows; }, moe_combine};

int64_t unary_rows(const choral_unary_args& a) { return a.y.rows; }

void add_rules(Rules& rules, const choral_unary_args& a) {
  rules.matrix(a.x, "x");
  rules.matrix(a.y, "y");
  rules.same_shape(a.x, a.y, "x and y differ in shape");
}
constexpr Operator<choral_unary_args> kAdd{"add", add_rules, unary_rows, add};

constexpr Operator<choral_bias_args> kAddBias{"add_bias",
                                              [](Rules& rules, const choral_bias_args& a) {
                                                rules.matrix(a.y, "y");
                                                rules.vector(a.bias, a.y.cols, "the bias");
                                              },
                                              [](const choral_bias_args& a) { return a.y.rows; }, add_bias};

constexpr Operator<choral_scale_args> kScale{"scale", [](Rules& rules, const choral_scale_args& a) { rules.matrix(a.y, "y"); },
                                             [](const choral_scale_args& a) { return a.y.rows; }, scale};

constexpr Operator<choral_soft_cap_args> kSoftCap{"soft_cap",
                                                  [](Rules& rules, const choral_soft_cap_args& a) {
                                                    rules.matrix(a.y, "y");
                                                    rules.expect(a.cap > 0, "the cap is positive");
                                                  },
                                                  [](const choral_soft_cap_args& a) { return a.y.rows; }, soft_cap};

void sample_rules(Rules& rules, const choral_sample_args& a) {
  rules.matrix(a.logits, "logits");
  rules.expect(a.logits.cols <= kMostSampledLogits, "a row has at most 2^21 logits");
  rules.array(a.rows, a.logits.rows, "the list of rows");
  rules.array(a.edits, a.edit_count, "the list of edits");
  rules.array(a.mask_words, a.mask_word_count, "the masks");
  rules.array(a.named, a.named_count, "the list of named tokens");
  rules.array(a.sampled, a.logits.rows, "the list of sampled rows");
  rules.array(a.top, a.top_count, "the list of log-probabilities");
}
constexpr Operator<choral_sample_args> kSample{"sample", sample_rules, [](const choral_sample_args& a) { return a.logits.rows; },
                                               sample, sample_scratch_bytes};

template <class Args>
void gated_rules(Rules& rules, const Args& a) {
  rules.matrix(a.x, "x");
  rules.matrix(a.y, "y");
  rules.expect(a.x.rows == a.y.rows && a.x.cols == 2 * a.y.cols, "x is twice as wide as y");
}
constexpr Operator<choral_unary_args> kSiluAndMul{"silu_and_mul", gated_rules<choral_unary_args>, unary_rows, silu_and_mul};
constexpr Operator<choral_unary_args> kGeluTanhAndMul{"gelu_tanh_and_mul", gated_rules<choral_unary_args>, unary_rows,
                                                      gelu_tanh_and_mul};
constexpr Operator<choral_swigluoai_args> kSwigluoaiAndMul{"swigluoai_and_mul", gated_rules<choral_swigluoai_args>,
                                                           [](const choral_swigluoai_args& a) { return a.y.rows; },
                                                           swigluoai_and_mul};

// ---- Norms.

int64_t norm_rows(const choral_rms_norm_args& a) { return a.x.rows; }

void norm_rules(Rules& rules, const choral_rms_norm_args& a) {
  rules.matrix(a.x, "x");
  rules.matrix(a.y, "y");
  rules.same_shape(a.x, a.y, "x and y differ in shape");
  rules.vector(a.weight, a.x.cols, "the weight");
}
constexpr Operator<choral_rms_norm_args> kRmsNorm{"rms_norm", norm_rules, norm_rows, rms_norm};

void head_norm_rules(Rules& rules, const choral_rms_norm_args& a) {
  rules.matrix(a.x, "x");
  rules.matrix(a.y, "y");
  rules.same_shape(a.x, a.y, "x and y differ in shape");
  rules.expect(a.weight.size > 0 && a.x.cols % a.weight.size == 0, "a row is whole heads");
  rules.vector(a.weight, a.weight.size, "the weight");
}
constexpr Operator<choral_rms_norm_args> kRmsNormHeads{"rms_norm_heads", head_norm_rules, norm_rows, rms_norm_heads};

void add_norm_rules(Rules& rules, const choral_rms_norm_args& a) {
  norm_rules(rules, a);
  rules.matrix(a.residual, "residual");
  rules.same_shape(a.x, a.residual, "x and residual differ in shape");
}
constexpr Operator<choral_rms_norm_args> kAddRmsNorm{"add_rms_norm", add_norm_rules, norm_rows, add_rms_norm};

void add_norm_bias_rules(Rules& rules, const choral_rms_norm_args& a) {
  add_norm_rules(rules, a);
  rules.vector(a.bias, a.x.cols, "the bias");
}
constexpr Operator<choral_rms_norm_args> kAddRmsNormBias{"add_rms_norm_bias", add_norm_bias_rules, norm_rows, add_rms_norm_bias};

// ---- Rotary embeddings and the cache.

int64_t rotary_rows(const choral_rotary_args& a) { return a.q.rows; }

void rotary_rules(Rules& rules, const choral_rotary_args& a) {
  const choral_rotary_table& t = a.table;
  rules.expect(t.head_dim > 0 && t.rotary_dim >= 0 && t.rotary_dim % 2 == 0 && t.rotary_dim <= t.head_dim && t.max_positions >= 0,
               "the table is no table");
  rules.matrix(a.q, "q");
  rules.matrix(a.k, "k");
  if (rules.status() != nullptr) return;
  rules.expect(a.q.rows == a.k.rows && a.q.cols % t.head_dim == 0 && a.k.cols % t.head_dim == 0,
               "q and k are rows of whole heads");
  rules.array(a.positions, a.q.rows, "the list of positions");
  if (t.rotary_dim > 0) rules.array(t.cos_sin, t.max_positions, "the table");
}
constexpr Operator<choral_rotary_args> kRotaryEmbedding{"rotary_embedding", rotary_rules, rotary_rows, rotary_embedding};

void normed_rotary_rules(Rules& rules, const choral_rotary_args& a) {
  rotary_rules(rules, a);
  rules.vector(a.q_weight, a.table.head_dim, "q's weight");
  rules.vector(a.k_weight, a.table.head_dim, "k's weight");
}
constexpr Operator<choral_rotary_args> kQkNormRope{"qk_norm_rope", normed_rotary_rules, rotary_rows, qk_norm_rope};

// k and v as rows for the cache.
void stored_rules(Rules& rules, const choral_kv_cache& cache, const choral_matrix& k, const choral_matrix& v,
                  const int64_t* slots) {
  rules.cache(cache);
  rules.matrix(k, "k");
  if (cache.values != nullptr) rules.matrix(v, "v");
  rules.expect(k.cols == cache.kv_heads * cache.head_dim, "k does not fit the cache");
  rules.expect(cache.values == nullptr ? v.cols == 0 : v.rows == k.rows && v.cols == cache.kv_heads * cache.v_head_dim,
               "v does not fit the cache");
  rules.array(slots, k.rows, "the list of slots");
}

void rope_write_rules(Rules& rules, const choral_rotary_args& a) {
  rotary_rules(rules, a);
  stored_rules(rules, a.cache, a.k, a.v, a.slots);
}
constexpr Operator<choral_rotary_args> kRopeWriteKv{"rope_write_kv", rope_write_rules, rotary_rows, rope_write_kv};

constexpr Operator<choral_write_kv_args> kWriteKv{
    "write_kv", [](Rules& rules, const choral_write_kv_args& a) { stored_rules(rules, a.cache, a.k, a.v, a.slots); },
    [](const choral_write_kv_args& a) { return a.k.rows; }, write_kv};

void attention_rules(Rules& rules, const choral_attention_args& a) {
  rules.cache(a.cache);
  rules.matrix(a.q, "q");
  rules.matrix(a.out, "out");
  if (rules.status() != nullptr) return;
  rules.expect(a.heads > 0 && a.heads % a.cache.kv_heads == 0, "kv_heads divides heads");
  rules.expect(a.q.rows == a.out.rows && a.q.cols == a.heads * a.cache.head_dim && a.out.cols == a.heads * a.cache.v_head_dim,
               "q and out do not fit the heads");
  rules.expect(a.sliding_window >= 0 && a.softcap >= 0, "a window and a soft-cap are not negative");
  rules.array(a.sequences, a.sequence_count, "the list of sequences");
  rules.array(a.block_ids, a.block_id_count, "the block tables");
  if (a.sinks.data != nullptr) rules.vector(a.sinks, a.heads, "sinks");
}
constexpr Operator<choral_attention_args> kPagedAttention{
    "paged_attention", attention_rules, [](const choral_attention_args& a) { return a.sequence_count == 0 ? 0 : a.q.rows; },
    paged_attention, paged_attention_scratch_bytes};

// ---- Adapters.

int64_t lora_rows(const choral_lora_args& a) { return a.y.rows; }

void by_row(Rules& rules, const choral_lora_args& a) { rules.array(a.slot_of, a.y.rows, "the list of slots"); }

void by_sequence(Rules& rules, const choral_lora_args& a) {
  rules.expect(a.max_length >= 0, "lengths are not negative");
  rules.array(a.slot_of, a.sequence_count, "the list of slots");
  rules.array(a.starts, a.sequence_count, "the list of starts");
  rules.array(a.lengths, a.sequence_count, "the list of lengths");
}

void product_rules(Rules& rules, const choral_lora_args& a) {
  rules.stack(a.stack);
  rules.matrix(a.x, "x");
  rules.matrix(a.y, "y");
  rules.expect(a.x.rows == a.y.rows && a.x.cols == a.stack.cols, "x [rows, k] and the stack do not fit");
}

template <auto kNamed>
void shrink_rules(Rules& rules, const choral_lora_args& a) {
  product_rules(rules, a);
  rules.expect(a.y.cols == a.stack.rows, "y is as wide as the rank");
  kNamed(rules, a);
}

template <auto kNamed>
void expand_rules(Rules& rules, const choral_lora_args& a) {
  product_rules(rules, a);
  rules.expect(a.slice_begin >= 0 && a.slice_begin <= a.y.cols - a.stack.rows, "the slice lies within y's columns");
  kNamed(rules, a);
}

constexpr Operator<choral_lora_args> kBgmvShrink{"bgmv_shrink", shrink_rules<by_row>, lora_rows, bgmv_shrink};
constexpr Operator<choral_lora_args> kBgmvExpand{"bgmv_expand", expand_rules<by_row>, lora_rows, bgmv_expand};
constexpr Operator<choral_lora_args> kBgmvExpandSlice{"bgmv_expand_slice", expand_rules<by_row>, lora_rows, bgmv_expand_slice};
constexpr Operator<choral_lora_args> kSgmvShrink{"sgmv_shrink", shrink_rules<by_sequence>, lora_rows, sgmv_shrink};
constexpr Operator<choral_lora_args> kSgmvExpand{"sgmv_expand", expand_rules<by_sequence>, lora_rows, sgmv_expand};
constexpr Operator<choral_lora_args> kSgmvExpandSlice{"sgmv_expand_slice", expand_rules<by_sequence>, lora_rows,
                                                      sgmv_expand_slice};

// Each slice keeps the rules of the operator that it is by itself.
template <auto kPartOf, auto kRowRules, auto kSequenceRules>
void slices_rules(Rules& rules, const choral_lora_slices_args& a) {
  rules.expect(a.slice_count >= 1 && a.slice_count <= CHORAL_LORA_SLICES, "there is no such number of slices");
  for (int64_t i = 0; rules.status() == nullptr && i < a.slice_count; ++i) {
    rules.expect(a.slices[i].stack.dtype == a.slices[0].stack.dtype, "the stacks of slices have one type");
    (a.starts == nullptr ? kRowRules : kSequenceRules)(rules, kPartOf(a, a.slices[i]));
  }
}

constexpr Operator<choral_lora_slices_args> kLoraShrink{"lora_shrink",
                                                        slices_rules<shrink_of, shrink_rules<by_row>, shrink_rules<by_sequence>>,
                                                        [](const choral_lora_slices_args& a) { return a.x.rows; }, lora_shrink};
constexpr Operator<choral_lora_slices_args> kLoraExpand{"lora_expand",
                                                        slices_rules<expand_of, expand_rules<by_row>, expand_rules<by_sequence>>,
                                                        [](const choral_lora_slices_args& a) { return a.y.rows; }, lora_expand};

void scale_rules(Rules& rules, const choral_lora_args& a) {
  rules.stack(a.stack);
  rules.take(a.stack.dtype == CHORAL_F32, "factors", a.stack.dtype);
  rules.matrix(a.y, "y");
  rules.expect(a.stack.rows == 1 && a.stack.cols == a.y.cols, "factors are as wide as y");
  by_row(rules, a);
}
constexpr Operator<choral_lora_args> kBgmvScale{"bgmv_scale", scale_rules, lora_rows, bgmv_scale};

constexpr choral_op kOps[] = {entry<kMatmul>(),
                              entry<kGatherRows>(),
                              entry<kTakeRows>(),
                              entry<kMoeCombine>(),
                              entry<kAdd>(),
                              entry<kAddBias>(),
                              entry<kScale>(),
                              entry<kSoftCap>(),
                              entry<kSample>(),
                              entry<kSiluAndMul>(),
                              entry<kGeluTanhAndMul>(),
                              entry<kSwigluoaiAndMul>(),
                              entry<kRmsNorm>(),
                              entry<kRmsNormHeads>(),
                              entry<kRotaryEmbedding>(),
                              entry<kWriteKv>(),
                              entry<kPagedAttention>(),
                              entry<kBgmvShrink>(),
                              entry<kBgmvExpand>(),
                              entry<kBgmvExpandSlice>(),
                              entry<kSgmvShrink>(),
                              entry<kSgmvExpand>(),
                              entry<kSgmvExpandSlice>(),
                              entry<kBgmvScale>()};

constexpr choral_op kFusedOps[] = {entry<kAddRmsNorm>(),  entry<kAddRmsNormBias>(),           entry<kQkNormRope>(),
                                   entry<kRopeWriteKv>(), entry<kGroupedMatmul>(run_grouped), entry<kLoraShrink>(),
                                   entry<kLoraExpand>()};

}  // namespace

OpList ops() { return {kOps, std::ssize(kOps)}; }
OpList fused_ops() { return {kFusedOps, std::ssize(kFusedOps)}; }

}  // namespace choral_cuda
