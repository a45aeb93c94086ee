#include "models/model_outputs.h"

namespace choral::models {

ModelOutputs::ModelOutputs(layers::Builder& builder, Head head, const DecoderSpec& spec,
                           const layers::VocabParallelEmbedding& table)
    : head_(head), embedding_layers_(builder, spec.embedding_layers) {
  if (head.kind == HeadKind::kNone) return;
  const bool gives_classes = head.kind == HeadKind::kClasses;
  const std::string name = gives_classes ? "score" : "lm_head";
  const layers::LinearBase* linear = &table;
  if (gives_classes || !spec.tie_word_embeddings) {
    linear_ = builder.make<layers::ParallelLMHead>({.prefix = name,
                                                    .vocab = gives_classes ? head.classes : spec.vocab,
                                                    .hidden = spec.hidden,
                                                    .bias = !gives_classes && spec.head_bias});
    linear = linear_.get();
  }
  logits_ = builder.make<layers::LogitsProcessor>({.head = *linear,
                                                   .name = name,
                                                   .scale = gives_classes ? 1 : spec.logit_scale,
                                                   .softcap = gives_classes ? 0 : spec.logit_softcap});
}

void ModelOutputs::compute_logits(const platform::Context& ctx, const layers::ForwardBatch& batch, MatrixView<const float> hidden,
                                  std::span<const int32_t> rows, MatrixView<float> logits) const {
  CHORAL_CHECK(logits_ != nullptr, "a model without a head gives no logits");
  logits_->forward(ctx, hidden, rows, logits, batch.lora);
}

}  // namespace choral::models
