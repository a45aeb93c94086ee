// Random weights of any shape, made in memory: benches need a model's shape, not its file.
// Matrices are uniform in ±1/sqrt(in), vectors are ones; block types get valid blocks with sane scales. The same seed gives the
// same model. Norms have no bias. Every matrix of one size shares one buffer, so a model of any depth costs one layer's worth of
// source memory.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "quant/weight_source.h"
#include "tensor/tensor.h"

namespace choral::synthetic {

class Weights : public quant::WeightSource {
 public:
  // `format`: f32, f16, bf16 or a GGUF block type, for every matrix whose rows are whole blocks (else bf16).
  Weights(DType format, uint64_t seed, const quant::WeightRequest& request = {})
      : format_(format), seed_(seed), request_(request) {}

  bool contains(const std::string& name) const override { return !name.ends_with("norm.bias"); }
  Result<io::SourceTensor> take_any_of(const std::string& name, std::span<const Shape> shapes) override;
  void release(const std::string&) override {}
  const quant::WeightRequest& request() const override { return request_; }

 private:
  Result<Tensor> make(DType format, const Shape& shape);

  DType format_;
  uint64_t seed_;
  quant::WeightRequest request_;
  std::map<std::pair<int64_t, int64_t>, Tensor> by_size_;  // (rows, cols) -> data; rows = 0 for vectors
};

}  // namespace choral::synthetic
