#include "platform/plugin_ops.h"

#include "platform/host_view.h"
#include "platform/plugin_host.h"

namespace choral::platform {
namespace {

using In = OpTable::In;
using Out = OpTable::Out;
using Weight = OpTable::Weight;

PluginSession& session_of(const Context& ctx) { return static_cast<PluginSession&>(ctx.session); }

choral_matrix matrix(In m) { return {const_cast<float*>(m.data), m.rows, m.cols, m.stride}; }

choral_kv_cache kv_cache(const kernels::KvCacheView& cache) {
  return {.keys = cache.keys,
          .values = cache.values,
          .dtype = static_cast<int32_t>(cache.dtype),
          .block_tokens = static_cast<int32_t>(kernels::kKvBlockTokens),
          .blocks = cache.num_blocks,
          .kv_heads = cache.kv_heads,
          .head_dim = cache.head_dim,
          .v_head_dim = cache.v_head_dim};
}

choral_rotary_args rotary_args(const PlacedRotary& rotary, IndexArray<int32_t> positions, Out q, Out k) {
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

choral_rms_norm_args norm_args(In x, Weight w, float eps, In y) {
  auto args = with_header<choral_rms_norm_args>();
  args.x = matrix(x);
  args.y = matrix(y);
  args.weight = w.data();
  args.weight_size = static_cast<int64_t>(w.size());
  args.eps = eps;
  return args;
}

// The device's bare product meets the host's hooks there, as it would in the epilogue of a kernel of its own.
void finish_on_host(const Context& ctx, In product, const kernels::Epilogue& epilogue, Out y) {
  const MatrixView<float> tile = host_copy(ctx, product);
  const HostView<float> result(ctx, y, epilogue.accumulate ? Access::kReadWrite : Access::kWrite);
  if (epilogue.product_hook != nullptr) (*epilogue.product_hook)(0, 0, tile);
  const HostView<const float> bias(ctx, {epilogue.bias, epilogue.bias == nullptr ? 0 : 1, y.cols}, Access::kRead);
  for (int64_t r = 0; r < tile.rows; ++r) {
    for (int64_t c = 0; c < tile.cols; ++c) {
      float value = tile.row(r)[c];
      if (epilogue.bias != nullptr) value += (*bias).data[c];
      (*result).row(r)[c] = epilogue.accumulate ? value + (*result).row(r)[c] : value;
    }
  }
  if (epilogue.result_hook != nullptr) (*epilogue.result_hook)(0, 0, *result);
}

template <OpSet kSet>
void matmul(const Context& ctx, const kernels::PackedMatrix& w, In x, const kernels::Epilogue& epilogue, Out y) {
  if (!w.on_device()) return staged_cpu_ops().matmul.run(ctx, w, x, epilogue, y);
  const StepMark mark(ctx);
  const bool hooked = epilogue.product_hook != nullptr || epilogue.result_hook != nullptr;
  const Out product = hooked ? ctx.make_matrix(y.rows, y.cols) : y;
  auto args = with_header<choral_matmul_args>();
  args.weight = static_cast<const PluginMatrix&>(w).handle();
  args.x = matrix(x);
  args.y = matrix(product);
  if (!hooked) {
    args.bias = epilogue.bias;
    args.accumulate = epilogue.accumulate ? 1 : 0;
  }
  if (session_of(ctx).call(kSet, PluginOp::kMatmul, &args)) {
    if (hooked) finish_on_host(ctx, product, epilogue, y);
    return;
  }
  const auto copy = static_cast<const PluginMatrix&>(w).host_copy(ctx.kernel.pool);
  if (!copy.ok()) return session_of(ctx).fail(copy.status());
  // The bias is the device's, the copy of the weight the host's.
  kernels::Epilogue on_host = epilogue;
  const HostView<const float> bias(ctx, {epilogue.bias, epilogue.bias == nullptr ? 0 : 1, y.cols}, Access::kRead);
  on_host.bias = epilogue.bias == nullptr ? nullptr : (*bias).data;
  staged_cpu_ops().matmul.run(ctx, **copy, x, on_host, y);
}

template <OpSet kSet>
void gather_rows(const Context& ctx, const kernels::PackedMatrix& w, IndexArray<int32_t> ids, Out out) {
  if (w.on_device()) {
    auto args = with_header<choral_gather_rows_args>();
    args.weight = static_cast<const PluginMatrix&>(w).handle();
    args.ids = ids.on_device;
    args.out = matrix(out);
    if (session_of(ctx).call(kSet, PluginOp::kGatherRows, &args)) return;
  }
  staged_cpu_ops().gather_rows.run(ctx, w, ids, out);
}

template <OpSet kSet>
void take_rows(const Context& ctx, In x, IndexArray<int32_t> rows, Out out) {
  auto args = with_header<choral_take_rows_args>();
  args.x = matrix(x);
  args.rows = rows.on_device;
  args.out = matrix(out);
  if (!session_of(ctx).call(kSet, PluginOp::kTakeRows, &args)) staged_cpu_ops().take_rows.run(ctx, x, rows, out);
}

template <OpSet kSet, PluginOp kOp, auto kHost>
void unary(const Context& ctx, In x, Out y) {
  auto args = with_header<choral_unary_args>();
  args.x = matrix(x);
  args.y = matrix(y);
  if (!session_of(ctx).call(kSet, kOp, &args)) (staged_cpu_ops().*kHost).run(ctx, x, y);
}

template <OpSet kSet>
void rms_norm(const Context& ctx, In x, Weight w, float eps, Out y) {
  const auto args = norm_args(x, w, eps, y);
  if (!session_of(ctx).call(kSet, PluginOp::kRmsNorm, &args)) staged_cpu_ops().rms_norm.run(ctx, x, w, eps, y);
}

template <OpSet kSet>
void rms_norm_heads(const Context& ctx, Out x, Weight w, float eps) {
  const auto args = norm_args(x, w, eps, x);
  if (!session_of(ctx).call(kSet, PluginOp::kRmsNormHeads, &args)) staged_cpu_ops().rms_norm_heads.run(ctx, x, w, eps);
}

template <OpSet kSet>
void rotary_embedding(const Context& ctx, const PlacedRotary& rotary, IndexArray<int32_t> positions, Out q, Out k) {
  const auto args = rotary_args(rotary, positions, q, k);
  if (session_of(ctx).call(kSet, PluginOp::kRotaryEmbedding, &args)) return;
  staged_cpu_ops().rotary_embedding.run(ctx, rotary, positions, q, k);
}

void write_kv(const Context& ctx, const kernels::KvCacheView& cache, In k, In v, IndexArray<int64_t> slots) {
  auto args = with_header<choral_write_kv_args>();
  args.cache = kv_cache(cache);
  args.k = matrix(k);
  args.v = matrix(v);
  args.slots = slots.on_device;
  session_of(ctx).must_call(PluginOp::kWriteKv, &args);
}

void paged_attention(const Context& ctx, const kernels::AttentionParams& params, In q, const kernels::KvCacheView& cache,
                     const SequenceBatch& sequences, Out out) {
  auto args = with_header<choral_attention_args>();
  args.cache = kv_cache(cache);
  args.q = matrix(q);
  args.out = matrix(out);
  args.heads = params.heads;
  args.scale = params.scale;
  args.softcap = params.softcap;
  args.sliding_window = params.sliding_window;
  args.sequences = static_cast<const choral_sequence*>(sequences.on_device);
  args.sequence_count = static_cast<int64_t>(sequences.host.size());
  args.block_ids = sequences.block_ids_on_device;
  args.block_id_count = sequences.block_id_count;
  session_of(ctx).must_call(PluginOp::kPagedAttention, &args);
}

// The fused ones: the library comes with the first call; without it they are what they mean.

const OpTable& composed() {
  static const OpTable kOps = [] {
    OpTable table;
    compose_fused_ops(table);
    return table;
  }();
  return kOps;
}

void add_rms_norm(const Context& ctx, In x, Out residual, Weight w, float eps, Out y) {
  auto args = norm_args(x, w, eps, y);
  args.residual = matrix(residual);
  auto& session = session_of(ctx);
  if (session.enable_custom_op(ctx) && session.call(OpSet::kTable, PluginOp::kAddRmsNorm, &args)) return;
  composed().add_rms_norm.run(ctx, x, residual, w, eps, y);
}

void qk_norm_rope(const Context& ctx, const PlacedRotary& rotary, IndexArray<int32_t> positions, Out q, Weight q_weight, Out k,
                  Weight k_weight, float eps) {
  auto args = rotary_args(rotary, positions, q, k);
  args.q_weight = q_weight.data();
  args.k_weight = k_weight.data();
  args.eps = eps;
  auto& session = session_of(ctx);
  if (session.enable_custom_op(ctx) && session.call(OpSet::kTable, PluginOp::kQkNormRope, &args)) return;
  composed().qk_norm_rope.run(ctx, rotary, positions, q, q_weight, k, k_weight, eps);
}

void rope_write_kv(const Context& ctx, const PlacedRotary& rotary, IndexArray<int32_t> positions, Out q, Out k, In v,
                   const kernels::KvCacheView& cache, IndexArray<int64_t> slots) {
  auto args = rotary_args(rotary, positions, q, k);
  args.v = matrix(v);
  args.cache = kv_cache(cache);
  args.slots = slots.on_device;
  auto& session = session_of(ctx);
  if (session.enable_custom_op(ctx) && session.call(OpSet::kTable, PluginOp::kRopeWriteKv, &args)) return;
  composed().rope_write_kv.run(ctx, rotary, positions, q, k, v, cache, slots);
}

// Calls visit(entry of `table`, its host's counterpart, the function that calls the plug-in).
template <OpSet kSet, class Visit>
void with_entry(OpTable& table, PluginOp op, Visit visit) {
  const OpTable& host = staged_cpu_ops();
  switch (op) {
    case PluginOp::kMatmul: return visit(table.matmul, host.matmul, matmul<kSet>);
    case PluginOp::kGatherRows: return visit(table.gather_rows, host.gather_rows, gather_rows<kSet>);
    case PluginOp::kTakeRows: return visit(table.take_rows, host.take_rows, take_rows<kSet>);
    case PluginOp::kAdd: return visit(table.add, host.add, unary<kSet, PluginOp::kAdd, &OpTable::add>);
    case PluginOp::kRmsNorm: return visit(table.rms_norm, host.rms_norm, rms_norm<kSet>);
    case PluginOp::kRmsNormHeads: return visit(table.rms_norm_heads, host.rms_norm_heads, rms_norm_heads<kSet>);
    case PluginOp::kRotaryEmbedding: return visit(table.rotary_embedding, host.rotary_embedding, rotary_embedding<kSet>);
    case PluginOp::kSiluAndMul:
      return visit(table.silu_and_mul, host.silu_and_mul, unary<kSet, PluginOp::kSiluAndMul, &OpTable::silu_and_mul>);
    case PluginOp::kGeluTanhAndMul:
      return visit(table.gelu_tanh_and_mul, host.gelu_tanh_and_mul,
                   unary<kSet, PluginOp::kGeluTanhAndMul, &OpTable::gelu_tanh_and_mul>);
    case PluginOp::kWriteKv: return visit(table.write_kv, host.write_kv, write_kv);
    case PluginOp::kPagedAttention: return visit(table.paged_attention, host.paged_attention, paged_attention);
    case PluginOp::kAddRmsNorm: return visit(table.add_rms_norm, composed().add_rms_norm, add_rms_norm);
    case PluginOp::kQkNormRope: return visit(table.qk_norm_rope, composed().qk_norm_rope, qk_norm_rope);
    case PluginOp::kRopeWriteKv: return visit(table.rope_write_kv, composed().rope_write_kv, rope_write_kv);
    case PluginOp::kCount: break;
  }
  CHORAL_CHECK(false, "every operator of a plug-in has an entry");
}

}  // namespace

void install_plugin_op(OpTable& table, PluginOp op, OpSet set, std::string_view provider, std::string_view why) {
  const auto install = [&](auto& entry, const auto&, auto* run) { entry.serve(run, provider, why); };
  if (set == OpSet::kTable) return with_entry<OpSet::kTable>(table, op, install);
  with_entry<OpSet::kCustom>(table, op, install);
}

void withdraw_plugin_op(OpTable& table, PluginOp op, std::string_view why) {
  with_entry<OpSet::kTable>(table, op, [&](auto& entry, const auto& host, auto*) {
    entry.provider = host.provider;
    entry.reason = why;
  });
}

}  // namespace choral::platform
