#include "layers/rms_norm.h"

namespace choral::layers {
namespace {

lora::LoRATarget norm_target(const RMSNorm::Spec& spec, float stored_less) {
  return {.kind = lora::TargetKind::kNorm,
          .name = spec.prefix,
          .members = {{spec.prefix, spec.size}},
          .in = spec.size,
          .heads = spec.heads,
          .stored_less = stored_less};
}

}  // namespace

RMSNorm::RMSNorm(Builder& builder, const Spec& spec) : RMSNorm(builder, spec, kLayerName, 0) {}

RMSNorm::RMSNorm(Builder& builder, const Spec& spec, std::string_view op_name, float stored_less)
    : CustomOp(op_name, builder.custom_ops, builder.session),
      prefix_(spec.prefix),
      tensor_(spec.tensor.empty() ? prefix_ + ".weight" : spec.tensor),
      heads_(spec.heads),
      biased_(spec.biased),
      weighted_(spec.weighted),
      eps_(spec.eps),
      factor_(spec.factor),
      stored_less_(stored_less),
      norm_(bind<platform::ops::RmsNorm>()),
      norm_heads_(bind<platform::ops::RmsNormHeads>()),
      add_bias_(bind<platform::ops::AddBias>()) {
  weight_.host().resize(spec.size, 1.0F);
  if (biased_) bias_.host().resize(spec.size);
  if (weighted_ && spec.tensor.empty()) {
    auto target = norm_target(spec, stored_less);
    target.base_bias = [this] { return std::span<const float>(bias_.host()); };
    lora_target_ = builder.add_lora_target(std::move(target));
  }
  builder.modules.push_back(this);
}

Status RMSNorm::load_weights(quant::WeightSource& source) {
  if (!weighted_) return {};
  CHORAL_RETURN_IF_ERROR(source.read_vector(tensor_, weight_.host(), stored_less_, heads_));
  for (float& w : weight_.host()) w *= factor_;
  if (!biased_ && !source.contains(prefix_ + ".bias")) return {};
  bias_.host().resize(weight_.host().size());
  return source.read_vector(prefix_ + ".bias", bias_.host());
}

Status RMSNorm::process_weights_after_loading(const platform::Context& ctx, quant::WeightSource&) {
  CHORAL_RETURN_IF_ERROR(weight_.keep(ctx.session));
  return bias_.keep(ctx.session);
}

bool RMSNorm::may_fuse(std::string_view provider) const {
  return agrees_with<platform::ops::RmsNorm>(provider) && agrees_with<platform::ops::RmsNormHeads>(provider) &&
         (bias().empty() || agrees_with<platform::ops::AddBias>(provider));
}

void RMSNorm::forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                      const lora::PunicaWrapper* lora) const {
  for_each_run(ctx, std::array{this}, x.rows, lora, [&](int64_t row, int64_t count, const auto& vectors) {
    const auto out = y.sub_rows(row, count);
    norm_(ctx, x.sub_rows(row, count), vectors[0].weight, eps_, out);
    if (!vectors[0].bias.empty()) add_bias_(ctx, vectors[0].bias, out);
  });
}

void RMSNorm::forward_heads(const platform::Context& ctx, MatrixView<float> x, const lora::PunicaWrapper* lora) const {
  for_each_run(ctx, std::array{this}, x.rows, lora, [&](int64_t row, int64_t count, const auto& vectors) {
    const auto out = x.sub_rows(row, count);
    norm_heads_(ctx, out, vectors[0].weight, eps_);
    const auto size = std::ssize(vectors[0].bias);
    for (int64_t head = 0; size > 0 && head < x.cols; head += size) add_bias_(ctx, vectors[0].bias, out.sub_cols(head, size));
  });
}

void RMSNorm::forward_in_parts(const platform::Context& ctx, MatrixView<float> x, int64_t parts,
                               const lora::PunicaWrapper* lora) const {
  const int64_t width = x.cols / parts;
  for_each_run(ctx, std::array{this}, x.rows, lora, [&](int64_t row, int64_t count, const auto& vectors) {
    const auto out = x.sub_rows(row, count);
    for (int64_t begin = 0; begin < x.cols; begin += width) {
      const auto part = out.sub_cols(begin, width);
      norm_(ctx, part, vectors[0].weight.subspan(begin, width), eps_, part);
    }
    if (!vectors[0].bias.empty()) add_bias_(ctx, vectors[0].bias, out);
  });
}

std::unique_ptr<RMSNorm> make_rms_norm(Builder& builder, NormWeight form, const RMSNorm::Spec& spec) {
  if (form == NormWeight::kOnePlus) return builder.make<GemmaRMSNorm>(spec);
  return builder.make<RMSNorm>(spec);
}

}  // namespace choral::layers
