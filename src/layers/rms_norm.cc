#include "layers/rms_norm.h"

#include "kernels/ref/rms_norm.h"

namespace choral::layers {
namespace {

lora::LoRATarget norm_target(const std::string& prefix, int64_t size) {
  return {.kind = lora::TargetKind::kNorm, .name = prefix, .members = {{prefix, size}}, .in = size};
}

}  // namespace

RMSNorm::RMSNorm(Builder& builder, std::string prefix, int64_t size, float eps)
    : CustomOp("rms_norm", builder.custom_ops, builder.platform),
      prefix_(std::move(prefix)),
      eps_(eps),
      weight_(static_cast<size_t>(size)),
      lora_target_(builder.add_lora_target(norm_target(prefix_, size))),
      run_(form() == platform::OpForm::kNative ? &RMSNorm::run_native : &RMSNorm::run_op) {
  builder.modules.push_back(this);
}

Status RMSNorm::load_weights(quant::WeightSource& source) { return source.read_vector(prefix_ + ".weight", weight_); }

void RMSNorm::forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                      const lora::PunicaWrapper* lora) const {
  if (lora == nullptr) return (this->*run_)(ctx, x, weight_, y);
  lora->for_each_norm(lora_target_, x.rows, [&](int64_t row, int64_t count, Weight own) {
    (this->*run_)(ctx, x.sub_rows(row, count), own.empty() ? Weight(weight_) : own, y.sub_rows(row, count));
  });
}

void RMSNorm::forward_heads(const platform::Context& ctx, MatrixView<float> x, const lora::PunicaWrapper* lora) const {
  if (lora == nullptr) return run_heads(ctx, x, weight_);
  lora->for_each_norm(lora_target_, x.rows, [&](int64_t row, int64_t count, Weight own) {
    run_heads(ctx, x.sub_rows(row, count), own.empty() ? Weight(weight_) : own);
  });
}

void RMSNorm::run_heads(const platform::Context& ctx, MatrixView<float> x, Weight weight) const {
  if (form() != platform::OpForm::kNative) return ctx.ops.rms_norm_heads(ctx, x, weight, eps_);
  const auto size = static_cast<int64_t>(weight.size());
  for (int64_t begin = 0; begin < x.cols; begin += size) {
    const auto head = x.sub_cols(begin, size);
    run_native(ctx, head, weight, head);
  }
}

void RMSNorm::run_op(const platform::Context& ctx, MatrixView<const float> x, Weight weight, MatrixView<float> y) const {
  ctx.ops.rms_norm(ctx, x, weight, eps_, y);
}

void RMSNorm::run_native(const platform::Context&, MatrixView<const float> x, Weight weight, MatrixView<float> y) const {
  kernels::ref::rms_norm(x, weight, eps_, y);
}

}  // namespace choral::layers
