#include "layers/rms_norm.h"

#include "kernels/ref/rms_norm.h"

namespace choral::layers {

RMSNorm::RMSNorm(Builder& builder, std::string prefix, int64_t size, float eps)
    : CustomOp("rms_norm", builder.custom_ops, builder.platform),
      prefix_(std::move(prefix)),
      eps_(eps),
      weight_(static_cast<size_t>(size)),
      forward_(form() == platform::OpForm::kNative ? &RMSNorm::forward_native : &RMSNorm::forward_op) {
  builder.modules.push_back(this);
}

Status RMSNorm::load_weights(quant::WeightSource& source) { return source.read_vector(prefix_ + ".weight", weight_); }

void RMSNorm::forward_heads(const platform::Context& ctx, MatrixView<float> x) const {
  if (form() != platform::OpForm::kNative) return ctx.ops.rms_norm_heads(ctx, x, weight_, eps_);
  const auto size = static_cast<int64_t>(weight_.size());
  for (int64_t begin = 0; begin < x.cols; begin += size) {
    const auto head = x.sub_cols(begin, size);
    forward_native(ctx, head, head);
  }
}

void RMSNorm::forward_op(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y) const {
  ctx.ops.rms_norm(ctx, x, weight_, eps_, y);
}

void RMSNorm::forward_native(const platform::Context&, MatrixView<const float> x, MatrixView<float> y) const {
  kernels::ref::rms_norm(x, weight_, eps_, y);
}

}  // namespace choral::layers
