#include "layers/vocab_embedding.h"

#include "platform/host_view.h"

namespace choral::layers {
namespace {

quant::LinearShape table_shape(const VocabParallelEmbedding::Spec& spec) {
  return {.in = spec.hidden, .out = {spec.vocab}, .shard_names = {spec.prefix}, .bias = false};
}

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(Builder& builder, const Spec& spec)
    : LinearBase(builder, quant::LayerKind::kEmbedding, spec.prefix, table_shape(spec)),
      CustomOp(kLayerName, builder.custom_ops, builder.session),
      lora_target_(builder.add_lora_target(lora_target(lora::TargetKind::kEmbedding, spec.prefix))) {}

void VocabParallelEmbedding::lookup(const platform::Context& ctx, platform::IndexArray<int32_t> ids, MatrixView<float> out,
                                    const lora::PunicaWrapper* lora) const {
  if (form() == platform::OpForm::kNative) {
    const platform::HostView<float> rows(ctx, out, platform::Access::kWrite);
    for (int64_t i = 0; i < ids.size(); ++i) {
      ctx.session.fail(quant_method().read_row(ids.host[i], (*rows).row_span(i)));
    }
  } else {
    quant_method().gather_rows(ctx, ids, out);
  }
  if (lora != nullptr) lora->add_lora_embedding(ctx, lora_target_, ids, out);
}

ParallelLMHead::ParallelLMHead(Builder& builder, const Spec& spec)
    : LinearBase(builder, quant::LayerKind::kLmHead, spec.prefix, table_shape(spec)) {}

LogitsProcessor::LogitsProcessor(Builder& builder, const Spec& spec)
    : CustomOp(kLayerName, builder.custom_ops, builder.session), head_(spec.head), take_rows_(bind<platform::ops::TakeRows>()) {
  auto target = head_.lora_target(lora::TargetKind::kHead, spec.name);
  if (target.name != head_.prefix()) target.tied_to = head_.prefix();
  lora_target_ = builder.add_lora_target(std::move(target));
}

void LogitsProcessor::forward(const platform::Context& ctx, MatrixView<const float> hidden, std::span<const int32_t> rows,
                              MatrixView<float> logits, const lora::PunicaWrapper* lora) const {
  if (std::ssize(rows) == hidden.rows) return multiply(ctx, hidden, rows, logits, lora);  // every row, in order
  const platform::StepMark mark(ctx);
  const auto wanted = ctx.make_matrix(std::ssize(rows), hidden.cols);
  take_rows_(ctx, hidden, platform::place_indices(ctx, rows), wanted);
  multiply(ctx, wanted, rows, logits, lora);
}

void LogitsProcessor::multiply(const platform::Context& ctx, MatrixView<const float> hidden, std::span<const int32_t> rows,
                               MatrixView<float> logits, const lora::PunicaWrapper* lora) const {
  if (lora == nullptr) return head_.forward(ctx, hidden, logits);
  lora->add_lora_logits(ctx, lora_target_, hidden, rows, logits, [&](const kernels::Epilogue& wanted, MatrixView<float> to) {
    head_.quant_method().apply(ctx, hidden, wanted, to);
  });
}

}  // namespace choral::layers
