// The built-in device: every operator is a kernel of kernels/, every weight a packed matrix in host memory.
#include <cstring>

#include "kernels/activation.h"
#include "kernels/gemm_float.h"
#include "kernels/gemm_quant.h"
#include "kernels/rms_norm.h"
#include "platform/platform.h"

namespace choral::platform {
namespace {

using kernels::PackedMatrix;

void matmul(const Context& ctx, const PackedMatrix& w, MatrixView<const float> x, const kernels::Epilogue& epilogue,
            MatrixView<float> y) {
  w.multiply(ctx.kernel, x, epilogue, y);
}

void lora_shrink(const Context& ctx, std::span<const kernels::LoRAShrink> shrinks) { kernels::lora_shrink(ctx.kernel, shrinks); }
void lora_expand(const Context& ctx, std::span<const kernels::LoRAExpand> expands) { kernels::lora_expand(ctx.kernel, expands); }

void gather_rows(const Context& ctx, const PackedMatrix& w, std::span<const int32_t> ids, MatrixView<float> out) {
  constexpr int64_t kGrain = 8;  // a row is a few KiB
  ctx.kernel.pool.parallel_for(static_cast<int64_t>(ids.size()), kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) w.read_row(ids[i], out.row_span(i));
  });
}

void take_rows(const Context&, MatrixView<const float> x, std::span<const int32_t> rows, MatrixView<float> out) {
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(out.row(static_cast<int64_t>(i)), x.row(rows[i]), static_cast<size_t>(x.cols) * sizeof(float));
  }
}

void rms_norm(const Context& ctx, MatrixView<const float> x, std::span<const float> w, float eps, MatrixView<float> y) {
  kernels::rms_norm(ctx.kernel, x, w, eps, y);
}

void rms_norm_heads(const Context& ctx, MatrixView<float> x, std::span<const float> w, float eps) {
  kernels::rms_norm_heads(ctx.kernel, x, x.cols / static_cast<int64_t>(w.size()), w, eps);
}

void rotary_embedding(const Context& ctx, const kernels::RotaryTable& table, std::span<const int32_t> positions,
                      MatrixView<float> q, MatrixView<float> k) {
  kernels::apply_rotary(ctx.kernel, table, positions, q, q.cols / table.head_dim(), k, k.cols / table.head_dim());
}

void silu_and_mul(const Context& ctx, MatrixView<const float> x, MatrixView<float> y) { kernels::silu_and_mul(ctx.kernel, x, y); }
void gelu_tanh_and_mul(const Context& ctx, MatrixView<const float> x, MatrixView<float> y) {
  kernels::gelu_tanh_and_mul(ctx.kernel, x, y);
}

void write_kv(const Context& ctx, const kernels::KvCacheView& cache, MatrixView<const float> k, MatrixView<const float> v,
              std::span<const int64_t> slots) {
  kernels::write_kv(ctx.kernel, cache, k, v, slots);
}

void paged_attention(const Context& ctx, const kernels::AttentionParams& params, MatrixView<const float> q,
                     const kernels::KvCacheView& cache, std::span<const kernels::AttentionSequence> sequences,
                     MatrixView<float> out) {
  kernels::paged_attention(ctx.kernel, params, q, cache, sequences, out);
}

OpTable cpu_ops() {
  OpTable ops;
  ops.matmul.run = matmul;
  ops.lora_shrink.run = lora_shrink;
  ops.lora_expand.run = lora_expand;
  ops.gather_rows.run = gather_rows;
  ops.take_rows.run = take_rows;
  ops.rms_norm.run = rms_norm;
  ops.rms_norm_heads.run = rms_norm_heads;
  ops.rotary_embedding.run = rotary_embedding;
  ops.silu_and_mul.run = silu_and_mul;
  ops.gelu_tanh_and_mul.run = gelu_tanh_and_mul;
  ops.write_kv.run = write_kv;
  ops.paged_attention.run = paged_attention;
  ops.for_each([](auto& op) {
    CHORAL_CHECK(op.run != nullptr, "the CPU serves every operator");
    op.provider = "cpu";
  });
  return ops;
}

class CpuPlatform : public Platform {
 public:
  std::string_view name() const override { return "cpu"; }
  Device device() const override { return kCpuDevice; }
  const OpTable& ops() const override { return ops_; }
  Result<Tensor> allocate(DType dtype, Shape shape) const override { return Tensor::allocate(dtype, shape); }

  Result<std::unique_ptr<PackedMatrix>> prepack(const Context& ctx, std::span<const kernels::WeightRows> rows,
                                                DType format) const override {
    if (facts(format).is_block) return kernels::pack_quantised(rows, ctx.kernel.pool);
    return kernels::pack_float(rows, format, ctx.kernel.pool);
  }

 private:
  OpTable ops_ = cpu_ops();
};

}  // namespace

const Platform& cpu_platform() {
  static const CpuPlatform platform;
  return platform;
}

}  // namespace choral::platform
