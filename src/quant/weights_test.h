// A source of weights for tests: stored tensors by name, and what was given back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/float16.h"
#include "quant/weight_source.h"
#include "tensor/tensor.h"

namespace choral::quant::testing {

class StoredWeights : public WeightSource {
 public:
  explicit StoredWeights(const WeightRequest& request = {}) : request_(request) {}

  // `values` rounded to `type`, a float type.
  void add(const std::string& name, DType type, const Shape& shape, const std::vector<float>& values,
           std::vector<int32_t> row_order = {}, float added = 0) {
    Tensor tensor = *Tensor::allocate(type, shape);
    for (size_t i = 0; i < values.size(); ++i) {
      switch (type) {
        case DType::kF32: tensor.as<float>()[i] = values[i]; break;
        case DType::kF16: tensor.as<Float16>()[i] = to_float16(values[i]); break;
        case DType::kBF16: tensor.as<BFloat16>()[i] = to_bfloat16(values[i]); break;
        default: CHORAL_CHECK(false, "a float type, or add the tensor's bytes");
      }
    }
    add(name, tensor.view(), std::move(row_order), added);
    owned_.push_back(std::move(tensor));
  }
  // Bytes that the caller keeps.
  void add(const std::string& name, const TensorView& view, std::vector<int32_t> row_order = {}, float added = 0) {
    stored_[name] = {view, std::move(row_order), added};
  }

  bool contains(const std::string& name) const override { return stored_.contains(name); }
  Result<io::SourceTensor> take_any_of(const std::string& name, std::span<const Shape> shapes) override {
    if (!contains(name)) return not_found("no tensor {}", name);
    const auto& tensor = stored_[name];
    for (const Shape& shape : shapes) {
      if (tensor.view.shape == shape) return tensor;
    }
    return corrupt("tensor {} has shape {}, not {}", name, tensor.view.shape.to_string(), shapes.front().to_string());
  }
  void release(const std::string& name) override { released_.push_back(name); }
  const WeightRequest& request() const override { return request_; }

  const std::vector<std::string>& released() const { return released_; }  // in the order of the calls

 private:
  WeightRequest request_;
  std::vector<Tensor> owned_;
  std::map<std::string, io::SourceTensor> stored_;
  std::vector<std::string> released_;
};

}  // namespace choral::quant::testing
