// Rows of a table by token, which stays in its file: a row is read where it lies, when a token needs it. For tables that are most
// of a model, and whose rows are read and never multiplied (Gemma 4's per-layer embeddings). In memory is what the system
// caches of the file. One that is written to afterwards fails the steps that need it. Weights of a source without a
// file are copied. For adapters it is an embedding like another.
#pragma once

#include <memory>
#include <string>

#include "layers/graph.h"

namespace choral::layers {

class MappedEmbedding : public Module, public PluggedBlock {
 public:
  static constexpr std::string_view kLayerName = "mapped_embedding";
  struct Spec {
    std::string prefix;
    int64_t vocab = 0;
    int64_t width = 0;
  };
  MappedEmbedding(Builder& builder, const Spec& spec);

  // y row i (+)= row of the step's token i; x is not read. Tokens beyond the table are the row's adapter's.
  void forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
               MatrixView<float> y) const override;

  Status load_weights(quant::WeightSource& source) override;
  Status process_weights_after_loading(const platform::Context& ctx, quant::WeightSource& source) override;
  std::string prefix() const override { return spec_.prefix; }
  int64_t expected_bytes(const quant::WeightRequest&) const override { return checkpoint_ == nullptr ? table_.size_bytes() : 0; }
  int64_t weight_bytes() const override { return checkpoint_ == nullptr ? copy_.size_bytes() : 0; }
  int64_t mapped_bytes() const override { return checkpoint_ == nullptr ? 0 : table_.size_bytes(); }
  int64_t parameters() const override { return spec_.vocab * spec_.width; }
  std::string format() const override { return std::string(dtype_name(table_.dtype)); }
  std::string kernel_name(CpuLevel) const override { return "read from the file"; }

 private:
  void read_row(int64_t row, std::span<float> out) const;

  Spec spec_;
  std::string tensor_;
  TensorView table_;
  DType rounded_to_ = DType::kF32;                    // what --dtype wants of its values
  std::shared_ptr<const io::Checkpoint> checkpoint_;  // that has the table; null: copy_ has
  Tensor copy_;
  int lora_target_;
};

}  // namespace choral::layers
