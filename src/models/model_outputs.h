// What a model makes of its last hidden states: logits of a vocabulary or of classes, or nothing; and of what is pooled of them
// an embedding.
#pragma once

#include <memory>
#include <span>

#include "layers/embedding_layers.h"
#include "layers/vocab_embedding.h"
#include "models/decoder.h"
#include "models/model.h"

namespace choral::models {

class ModelOutputs {
 public:
  // `table`: of a model with tied weights the head's; it outlives this.
  ModelOutputs(layers::Builder& builder, Head head, const DecoderSpec& spec, const layers::VocabParallelEmbedding& table);

  Head head() const { return head_; }
  const layers::EmbeddingLayers& embedding_layers() const { return embedding_layers_; }
  // As Model::compute_logits().
  void compute_logits(const platform::Context& ctx, const layers::ForwardBatch& batch, MatrixView<const float> hidden,
                      std::span<const int32_t> rows, MatrixView<float> logits) const;

 private:
  Head head_;
  std::unique_ptr<layers::ParallelLMHead> linear_;   // null when its weights are the embedding's, and without a head
  std::unique_ptr<layers::LogitsProcessor> logits_;  // null without a head
  layers::EmbeddingLayers embedding_layers_;
};

}  // namespace choral::models
