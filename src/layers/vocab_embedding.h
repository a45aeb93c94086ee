// Token embedding and LM head. With tied weights both are one packed matrix: the head multiplies by it, the embedding reads rows.
#pragma once

#include <string>

#include "layers/linear.h"

namespace choral::layers {

// out row i = row ids[i] of the table; ids beyond it are tokens that the row's adapter brings. Also the head of a model that ties
// its weights. CustomOp "vocab_parallel_embedding".
class VocabParallelEmbedding : public LinearBase, public platform::CustomOp {
 public:
  static constexpr std::string_view kLayerName = "vocab_parallel_embedding";
  struct Spec {
    std::string prefix;
    int64_t vocab = 0;
    int64_t hidden = 0;
    bool bias = false;  // of a head
  };
  VocabParallelEmbedding(Builder& builder, const Spec& spec);
  virtual void lookup(const platform::Context& ctx, platform::IndexArray<int32_t> ids, MatrixView<float> out,
                      const lora::PunicaWrapper* lora = nullptr) const;

 private:
  bool holds(int32_t id) const;
  int owner_of(int32_t id) const;
  platform::IndexArray<int32_t> base_ids(const platform::Context& ctx, platform::IndexArray<int32_t> ids) const;
  void look_up_base(const platform::Context& ctx, platform::IndexArray<int32_t> ids, MatrixView<float> out) const;

  int lora_target_;
};

// logits = hidden·Wᵀ + b. [rows, vocab]
class ParallelLMHead : public LinearBase {
 public:
  static constexpr std::string_view kLayerName = "parallel_lm_head";
  using Spec = VocabParallelEmbedding::Spec;
  ParallelLMHead(Builder& builder, const Spec& spec);
};

// From the step's hidden rows to the logits of those rows that need them. CustomOp "logits_processor".
class LogitsProcessor : public platform::CustomOp {
 public:
  static constexpr std::string_view kLayerName = "logits_processor";
  struct Spec {
    const LinearBase& head;  // the LM head, or the embedding of a model with tied weights; it outlives this
    std::string name;        // by which adapters know it either way
    float scale = 1;         // what every logit is multiplied by
    float softcap = 0;       // > 0: it becomes softcap·tanh(logit / softcap) then
  };
  LogitsProcessor(Builder& builder, const Spec& spec);
  virtual ~LogitsProcessor() = default;
  // hidden [tokens, hidden], rows: which of them, ascending -> logits [rows, vocab], or wider by the most tokens that the adapter
  // of one of these rows brings: a row's logits go on with those of its own adapter's, and are undefined behind them.
  virtual void forward(const platform::Context& ctx, MatrixView<const float> hidden, std::span<const int32_t> rows,
                       MatrixView<float> logits, const lora::PunicaWrapper* lora = nullptr) const;

 private:
  void multiply(const platform::Context& ctx, MatrixView<const float> hidden, std::span<const int32_t> rows,
                MatrixView<float> logits, const lora::PunicaWrapper* lora) const;

  const LinearBase& head_;
  int lora_target_;
  float scale_, softcap_;
  const platform::OpOf<platform::ops::TakeRows>& take_rows_;
  const platform::OpOf<platform::ops::Scale>& scale_by_;
  const platform::OpOf<platform::ops::SoftCap>& soft_cap_;
};

}  // namespace choral::layers
