// Token embedding and LM head. With tied weights both are one packed matrix: the head multiplies by it, the embedding reads rows.
#pragma once

#include <string>

#include "layers/linear.h"

namespace choral::layers {

// out row i = row ids[i] of the table. Also the head of a model that ties its weights.
class VocabParallelEmbedding : public LinearBase {
 public:
  VocabParallelEmbedding(Builder& builder, const std::string& prefix, int64_t vocab, int64_t hidden);
  void lookup(const platform::Context& ctx, std::span<const int32_t> ids, MatrixView<float> out,
              const lora::PunicaWrapper* lora = nullptr) const;

 private:
  int lora_target_;
};

// logits = hidden·Wᵀ. [rows, vocab]
class ParallelLMHead : public LinearBase {
 public:
  ParallelLMHead(Builder& builder, const std::string& prefix, int64_t vocab, int64_t hidden);
};

// From the step's hidden rows to the logits of those rows that need them.
class LogitsProcessor {
 public:
  // `head` is the LM head, or the embedding of a model with tied weights; it outlives this. Adapters know it as `name` either way.
  LogitsProcessor(Builder& builder, const LinearBase& head, std::string name);
  // hidden [tokens, hidden], rows: which of them, ascending -> logits [rows, vocab]
  void forward(const platform::Context& ctx, MatrixView<const float> hidden, std::span<const int32_t> rows,
               MatrixView<float> logits, const lora::PunicaWrapper* lora = nullptr) const;

 private:
  void multiply(const platform::Context& ctx, MatrixView<const float> hidden, std::span<const int32_t> rows,
                MatrixView<float> logits, const lora::PunicaWrapper* lora) const;

  const LinearBase& head_;
  int lora_target_;
};

}  // namespace choral::layers
