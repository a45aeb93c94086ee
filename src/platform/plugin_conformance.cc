#include "platform/plugin_conformance.h"

#include <cmath>

#include "kernels/ref/attention.h"
#include "platform/host_view.h"

namespace choral::platform {
namespace {

// Sums of a device may be made in another order and in another precision of intermediate values than the host's.
constexpr float kTolerance = 2e-3F;
constexpr int64_t kRows = 5, kHeadDim = 16, kHeads = 4, kKvHeads = 2;

class Vectors {
 public:
  explicit Vectors(const Context& ctx) : ctx_(ctx) {}

  std::vector<float> values(int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) {
      seed_ = seed_ * 1664525U + 1013904223U;
      x = static_cast<float>(static_cast<int32_t>(seed_ >> 8) % 2000 - 1000) / 1000.0F;
    }
    return out;
  }
  // On the device, inside wider rows, as columns of a larger matrix are.
  MatrixView<float> matrix(int64_t rows, int64_t cols) {
    constexpr int64_t kGap = 16;
    const auto wide = ctx_.make_matrix(rows, cols + kGap);
    const auto host = values(rows * (cols + kGap));
    copy_to_device(ctx_, {host.data(), rows, cols + kGap}, wide);
    return wide.sub_cols(0, cols);
  }
  MatrixView<float> copy_of(MatrixView<float> m) {
    const auto twin = ctx_.make_matrix(m.rows, m.cols);
    const HostView<const float> host(ctx_, m, Access::kRead);
    copy_to_device(ctx_, *host, twin);
    return twin;
  }
  std::span<const float> weight(int64_t count) {
    const auto host = values(count);
    return {to_device(ctx_, std::span<const float>(host)), host.size()};
  }

  // Fine when both hold the same values.
  Status compare(MatrixView<float> got, MatrixView<float> wanted) {
    const HostView<const float> a(ctx_, got, Access::kRead), b(ctx_, wanted, Access::kRead);
    for (int64_t r = 0; r < got.rows; ++r) {
      for (int64_t c = 0; c < got.cols; ++c) {
        const float x = (*a).row(r)[c], y = (*b).row(r)[c];
        if (std::abs(x - y) <= kTolerance * std::max(1.0F, std::abs(y))) continue;
        return internal_error("it disagrees with the reference: {} instead of {} at [{}, {}] of its test vector", x, y, r, c);
      }
    }
    return {};
  }

  const Context& ctx() const { return ctx_; }

 private:
  const Context& ctx_;
  uint32_t seed_ = 1;
};

const OpTable& reference() { return staged_native_ops(); }

Status check_weights(Vectors& v, const OpTable& table, bool lookup) {
  const Context& ctx = v.ctx();
  constexpr int64_t kOut = 40, kIn = 48;
  const auto rows = v.values(kOut * kIn);
  const kernels::WeightRows part{{std::as_bytes(std::span(rows)).data(), DType::kF32, {kOut, kIn}, kCpuDevice}, {}};
  auto packed = ctx.session.prepack(ctx, {&part, 1}, DType::kF32);
  if (!packed.ok()) return std::move(packed).status();
  if (!(*packed)->on_device()) return unsupported("it does not pack float32 weights, which its test vector has");
  if (lookup) {
    const std::vector<int32_t> ids{7, 0, 39};
    const auto out = v.matrix(3, kIn), wanted = v.copy_of(out);
    table.gather_rows.run(ctx, **packed, place_indices(ctx, std::span<const int32_t>(ids)), out);
    const HostView<float> host(ctx, wanted, Access::kWrite);
    for (size_t i = 0; i < ids.size(); ++i) {
      std::copy_n(rows.begin() + ids[i] * kIn, kIn, (*host).row(static_cast<int64_t>(i)));
    }
    copy_to_device(ctx, *host, wanted);
    return v.compare(out, wanted);
  }
  const auto x = v.matrix(kRows, kIn), y = v.matrix(kRows, kOut), wanted = v.copy_of(y);
  const auto bias = v.weight(kOut);
  table.matmul.run(ctx, **packed, x, {.bias = bias.data(), .accumulate = true}, y);
  {
    const HostView<const float> in(ctx, x, Access::kRead), b(ctx, {bias.data(), 1, kOut}, Access::kRead);
    const HostView<float> out(ctx, wanted, Access::kReadWrite);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < kOut; ++j) {
        float sum = (*b).data[j];
        for (int64_t k = 0; k < kIn; ++k) sum += (*in).row(r)[k] * rows[static_cast<size_t>(j * kIn + k)];
        (*out).row(r)[j] += sum;
      }
    }
  }
  return v.compare(y, wanted);
}

// Two sequences: one of a prompt, one of a later chunk whose first tokens were written before.
Status check_attention(Vectors& v, const OpTable& table) {
  const Context& ctx = v.ctx();
  constexpr int64_t kBlocks = 3, kTokens = 40;  // tokens of the second sequence: more than a block
  const int64_t key_elements = kKvHeads * kHeadDim * kernels::kKvBlockTokens;
  CHORAL_TRY(auto keys, ctx.session.allocate_kv(DType::kF32, {kBlocks, key_elements}));
  CHORAL_TRY(auto values, ctx.session.allocate_kv(DType::kF32, {kBlocks, key_elements}));
  CHORAL_TRY(auto host_keys, Tensor::allocate(DType::kF32, {kBlocks, key_elements}));
  CHORAL_TRY(auto host_values, Tensor::allocate(DType::kF32, {kBlocks, key_elements}));
  kernels::KvCacheView cache{keys.data(), values.data(), DType::kF32, kBlocks, kKvHeads, kHeadDim, kHeadDim};
  kernels::KvCacheView host_cache = cache;
  host_cache.keys = host_keys.data();
  host_cache.values = host_values.data();

  const int64_t total = kRows + kTokens;
  const auto q = v.matrix(total, kHeads * kHeadDim), k = v.matrix(total, kKvHeads * kHeadDim),
             val = v.matrix(total, kKvHeads * kHeadDim);
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < kRows; ++i) slots.push_back(2 * kernels::kKvBlockTokens + i);
  for (int64_t i = 0; i < kTokens; ++i) slots.push_back(i < 32 ? 1 * kernels::kKvBlockTokens + i : i - 32);
  const std::vector<int32_t> first_table{2}, second_table{1, 0};
  const std::vector<kernels::AttentionSequence> sequences{
      {.query_begin = 0, .query_count = kRows, .context_tokens = 0, .block_table = first_table},
      {.query_begin = kRows, .query_count = 3, .context_tokens = kTokens - 3, .block_table = second_table}};
  const kernels::AttentionParams params{.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim, .scale = 0.25F};

  const int64_t asked = kRows + 3;
  const auto out = v.matrix(asked, kHeads * kHeadDim), wanted = v.copy_of(out);
  table.write_kv.run(ctx, cache, k, val, place_indices(ctx, std::span<const int64_t>(slots)));
  table.paged_attention.run(ctx, params, q.sub_rows(0, asked), cache, ctx.session.place_sequences(sequences), out);
  {
    const HostView<const float> hq(ctx, q, Access::kRead), hk(ctx, k, Access::kRead), hv(ctx, val, Access::kRead);
    const HostView<float> result(ctx, wanted, Access::kWrite);
    kernels::write_kv(ctx.kernel, host_cache, *hk, *hv, slots);
    kernels::ref::paged_attention(params, (*hq).sub_rows(0, asked), host_cache, sequences, *result);
  }
  return v.compare(out, wanted);
}

Status check_rotary(Vectors& v, PluginOp op, const OpTable& table) {
  const Context& ctx = v.ctx();
  CHORAL_TRY(const auto rotary, kernels::RotaryTable::make({.head_dim = kHeadDim, .rotary_dim = kHeadDim, .max_positions = 64}));
  const PlacedRotary placed{rotary, to_device(ctx, rotary.values())};
  const std::vector<int32_t> host_positions{0, 1, 63, 7, 31};
  const auto positions = place_indices(ctx, std::span<const int32_t>(host_positions));
  const auto q = v.matrix(kRows, kHeads * kHeadDim), k = v.matrix(kRows, kKvHeads * kHeadDim);
  const auto wanted_q = v.copy_of(q), wanted_k = v.copy_of(k);
  if (op == PluginOp::kQkNormRope) {
    const auto q_weight = v.weight(kHeadDim), k_weight = v.weight(kHeadDim);
    table.qk_norm_rope.run(ctx, placed, positions, q, q_weight, k, k_weight, 1e-5F);
    reference().rms_norm_heads.run(ctx, wanted_q, q_weight, 1e-5F);
    reference().rms_norm_heads.run(ctx, wanted_k, k_weight, 1e-5F);
  } else if (op == PluginOp::kRopeWriteKv) {
    CHORAL_TRY(auto keys, ctx.session.allocate_kv(DType::kF32, {1, kKvHeads * kHeadDim * kernels::kKvBlockTokens}));
    CHORAL_TRY(auto values, ctx.session.allocate_kv(DType::kF32, {1, kKvHeads * kHeadDim * kernels::kKvBlockTokens}));
    const kernels::KvCacheView cache{keys.data(), values.data(), DType::kF32, 1, kKvHeads, kHeadDim, kHeadDim};
    const std::vector<int64_t> slots{0, 1, 2, 3, -1};
    table.rope_write_kv.run(ctx, placed, positions, q, k, v.matrix(kRows, kKvHeads * kHeadDim), cache,
                            place_indices(ctx, std::span<const int64_t>(slots)));
  } else {
    table.rotary_embedding.run(ctx, placed, positions, q, k);
  }
  reference().rotary_embedding.run(ctx, placed, positions, wanted_q, wanted_k);
  CHORAL_RETURN_IF_ERROR(v.compare(q, wanted_q));
  return v.compare(k, wanted_k);
}

Status check_norm(Vectors& v, PluginOp op, const OpTable& table) {
  const Context& ctx = v.ctx();
  constexpr int64_t kCols = kHeads * kHeadDim;
  const auto x = v.matrix(kRows, kCols), y = v.matrix(kRows, kCols), wanted = v.copy_of(y);
  if (op == PluginOp::kRmsNormHeads) {
    const auto weight = v.weight(kHeadDim);
    const auto twin = v.copy_of(x);
    table.rms_norm_heads.run(ctx, x, weight, 1e-5F);
    reference().rms_norm_heads.run(ctx, twin, weight, 1e-5F);
    return v.compare(x, twin);
  }
  const auto weight = v.weight(kCols);
  if (op == PluginOp::kRmsNorm) {
    table.rms_norm.run(ctx, x, weight, 1e-5F, y);
    reference().rms_norm.run(ctx, x, weight, 1e-5F, wanted);
    return v.compare(y, wanted);
  }
  const auto residual = v.matrix(kRows, kCols), twin = v.copy_of(residual);
  table.add_rms_norm.run(ctx, x, residual, weight, 1e-5F, y);
  reference().add.run(ctx, x, twin);
  reference().rms_norm.run(ctx, twin, weight, 1e-5F, wanted);
  CHORAL_RETURN_IF_ERROR(v.compare(residual, twin));
  return v.compare(y, wanted);
}

Status check_rows(Vectors& v, PluginOp op, const OpTable& table) {
  const Context& ctx = v.ctx();
  const auto x = v.matrix(kRows, 64);
  if (op == PluginOp::kTakeRows) {
    const std::vector<int32_t> rows{4, 0};
    const auto picked = place_indices(ctx, std::span<const int32_t>(rows));
    const auto y = v.matrix(2, 64), wanted = v.copy_of(y);
    table.take_rows.run(ctx, x, picked, y);
    reference().take_rows.run(ctx, x, picked, wanted);
    return v.compare(y, wanted);
  }
  const auto y = v.matrix(kRows, op == PluginOp::kAdd ? 64 : 32), wanted = v.copy_of(y);
  const auto entry = [op](const OpTable& t) {
    return op == PluginOp::kAdd ? t.add.run : op == PluginOp::kSiluAndMul ? t.silu_and_mul.run : t.gelu_tanh_and_mul.run;
  };
  entry(table)(ctx, x, y);
  entry(reference())(ctx, x, wanted);
  return v.compare(y, wanted);
}

}  // namespace

Status check_conformance(const Context& ctx, PluginOp op, const OpTable& table) {
  const StepMark mark(ctx);
  Vectors v(ctx);
  switch (op) {
    case PluginOp::kMatmul: return check_weights(v, table, false);
    case PluginOp::kGatherRows: return check_weights(v, table, true);
    case PluginOp::kTakeRows:
    case PluginOp::kAdd:
    case PluginOp::kSiluAndMul:
    case PluginOp::kGeluTanhAndMul: return check_rows(v, op, table);
    case PluginOp::kRmsNorm:
    case PluginOp::kRmsNormHeads:
    case PluginOp::kAddRmsNorm: return check_norm(v, op, table);
    case PluginOp::kRotaryEmbedding:
    case PluginOp::kQkNormRope:
    case PluginOp::kRopeWriteKv: return check_rotary(v, op, table);
    case PluginOp::kWriteKv:
    case PluginOp::kPagedAttention: return check_attention(v, table);
    case PluginOp::kCount: break;
  }
  return {};
}

}  // namespace choral::platform
