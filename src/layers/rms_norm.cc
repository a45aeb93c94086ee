#include "layers/rms_norm.h"

namespace choral::layers {
namespace {

lora::LoRATarget norm_target(const std::string& prefix, int64_t size) {
  return {.kind = lora::TargetKind::kNorm, .name = prefix, .members = {{prefix, size}}, .in = size};
}

}  // namespace

RMSNorm::RMSNorm(Builder& builder, const Spec& spec)
    : CustomOp(kLayerName, builder.custom_ops, builder.session),
      prefix_(spec.prefix),
      eps_(spec.eps),
      lora_target_(builder.add_lora_target(norm_target(prefix_, spec.size))),
      norm_(bind<platform::ops::RmsNorm>()),
      norm_heads_(bind<platform::ops::RmsNormHeads>()) {
  weight_.host().resize(spec.size);
  builder.modules.push_back(this);
}

Status RMSNorm::load_weights(quant::WeightSource& source) { return source.read_vector(prefix_ + ".weight", weight_.host()); }

bool RMSNorm::may_fuse(std::string_view provider) const {
  return agrees_with<platform::ops::RmsNorm>(provider) && agrees_with<platform::ops::RmsNormHeads>(provider);
}

void RMSNorm::forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                      const lora::PunicaWrapper* lora) const {
  for_each_weight(ctx, std::array{this}, x.rows, lora, [&](int64_t row, int64_t count, const auto& weights) {
    norm_(ctx, x.sub_rows(row, count), weights[0], eps_, y.sub_rows(row, count));
  });
}

void RMSNorm::forward_heads(const platform::Context& ctx, MatrixView<float> x, const lora::PunicaWrapper* lora) const {
  for_each_weight(ctx, std::array{this}, x.rows, lora, [&](int64_t row, int64_t count, const auto& weights) {
    norm_heads_(ctx, x.sub_rows(row, count), weights[0], eps_);
  });
}

}  // namespace choral::layers
