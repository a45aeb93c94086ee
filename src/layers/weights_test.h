// A source of weights for tests of layers.
#pragma once

#include <map>
#include <string>

#include "quant/weight_source.h"

namespace choral::layers {

// Tensors by name, filled with a fixed pattern; the one that is `missing_` is absent.
class PatternWeights : public quant::WeightSource {
 public:
  // Norms have a bias in few checkpoints: here if they are listed.
  bool contains(const std::string& name) const override {
    return name != missing_ && (!name.ends_with("norm.bias") || name == biased_ + ".bias");
  }
  Result<io::SourceTensor> take_any_of(const std::string& name, std::span<const Shape> shapes) override {
    if (name == missing_) return not_found("no tensor {}", name);
    auto& tensor = tensors_[name];
    CHORAL_TRY(tensor, Tensor::allocate(DType::kF32, shapes.front()));
    uint32_t seed = static_cast<uint32_t>(std::hash<std::string>()(name));
    for (auto& x : tensor.as<float>()) {
      seed = seed * 1664525u + 1013904223u;
      x = static_cast<float>(static_cast<int>(seed >> 16) % 2000 - 1000) / 1000.0f;
    }
    return io::SourceTensor{tensor.view(), {}};
  }
  void release(const std::string& name) override { tensors_.erase(name); }
  const quant::WeightRequest& request() const override { return request_; }

  std::string missing_, biased_;
  quant::WeightRequest request_;

 private:
  std::map<std::string, Tensor> tensors_;
};

}  // namespace choral::layers
