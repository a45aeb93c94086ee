#include "layers/vocab_embedding.h"

namespace choral::layers {
namespace {

quant::LinearShape table_shape(const std::string& prefix, int64_t vocab, int64_t hidden) {
  return {.in = hidden, .out = {vocab}, .shard_names = {prefix}, .bias = false};
}

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(Builder& builder, const std::string& prefix, int64_t vocab, int64_t hidden)
    : LinearBase(builder, quant::LayerKind::kEmbedding, prefix, table_shape(prefix, vocab, hidden)),
      lora_target_(builder.add_lora_target(lora_target(lora::TargetKind::kEmbedding, prefix))) {}

void VocabParallelEmbedding::lookup(const platform::Context& ctx, std::span<const int32_t> ids, MatrixView<float> out,
                                    const lora::PunicaWrapper* lora) const {
  quant_method().gather_rows(ctx, ids, out);
  if (lora != nullptr) lora->add_lora_embedding(ctx, lora_target_, ids, out);
}

ParallelLMHead::ParallelLMHead(Builder& builder, const std::string& prefix, int64_t vocab, int64_t hidden)
    : LinearBase(builder, quant::LayerKind::kLmHead, prefix, table_shape(prefix, vocab, hidden)) {}

LogitsProcessor::LogitsProcessor(Builder& builder, const LinearBase& head, std::string name)
    : head_(head) {
  auto target = head.lora_target(lora::TargetKind::kHead, std::move(name));
  if (target.name != head.prefix()) target.tied_to = head.prefix();
  lora_target_ = builder.add_lora_target(std::move(target));
}

void LogitsProcessor::forward(const platform::Context& ctx, MatrixView<const float> hidden, std::span<const int32_t> rows,
                              MatrixView<float> logits, const lora::PunicaWrapper* lora) const {
  if (static_cast<int64_t>(rows.size()) == hidden.rows) return multiply(ctx, hidden, rows, logits, lora);  // every row, in order
  const Arena::Mark mark(ctx.arena());
  const auto wanted = ctx.make_matrix(static_cast<int64_t>(rows.size()), hidden.cols);
  ctx.ops.take_rows(ctx, hidden, rows, wanted);
  multiply(ctx, wanted, rows, logits, lora);
}

void LogitsProcessor::multiply(const platform::Context& ctx, MatrixView<const float> hidden, std::span<const int32_t> rows,
                               MatrixView<float> logits, const lora::PunicaWrapper* lora) const {
  if (lora == nullptr) return head_.forward(ctx, hidden, logits);
  lora->add_lora_logits(ctx, lora_target_, hidden, rows, logits, [&](const auto* product_hook, const auto* result_hook) {
    head_.quant_method().apply(ctx, hidden, {.product_hook = product_hook, .result_hook = result_hook}, logits);
  });
}

}  // namespace choral::layers
