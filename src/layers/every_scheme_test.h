// Linear layers in every scheme, for tests: those of --quantization, weights as they are stored, and W8A8 of a checkpoint.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "quant/quant_config.h"
#include "quant/weights_test.h"

namespace choral::layers {

inline std::vector<float> waves(int64_t count, float size, float step) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(size * std::sin(step * static_cast<float>(i + 1)));
  return out;
}

// A layer's tensors: a float weight for what is rounded in flight, or int8 with the scales of W8A8.
struct SchemeWeights {
  quant::testing::StoredWeights source;
  Tensor codes;

  SchemeWeights(const std::string& layer, int64_t rows, int64_t cols, bool stored_integers, float step = 0.7f) {
    const auto w = waves(rows * cols, 0.3f, step);
    if (!stored_integers) {
      source.add(layer + ".weight", DType::kF32, {rows, cols}, w);
      return;
    }
    codes = *Tensor::allocate(DType::kI8, {rows, cols});
    for (size_t i = 0; i < w.size(); ++i) codes.as<int8_t>()[i] = static_cast<int8_t>(std::rint(w[i] / 0.3f * 127));
    source.add(layer + ".weight", codes.view());
    source.add(layer + ".weight_scale", DType::kF32, {rows, 1}, std::vector<float>(rows, 0.3f / 127));
    source.add(layer + ".input_scale", DType::kF32, {1}, {2.0f / 127});
  }
};

class OneScheme : public quant::QuantConfig {
 public:
  explicit OneScheme(quant::SchemePtr scheme) : scheme_(std::move(scheme)) {}
  Result<quant::LayerScheme> scheme_for(quant::LayerKind, std::string_view) const override {
    return quant::LayerScheme{scheme_, "a test"};
  }

 private:
  quant::SchemePtr scheme_;
};

struct NamedScheme {
  std::string name;
  std::unique_ptr<quant::QuantConfig> config;
  bool stored_integers = false;
};
inline std::vector<NamedScheme> every_scheme() {
  std::vector<NamedScheme> schemes;
  auto names = quant::in_flight_names();
  names.push_back("auto");
  for (const auto& name : names) schemes.push_back({name, *quant::make_quant_config({}, name)});
  schemes.push_back({"w8a8", std::make_unique<OneScheme>(quant::static_scheme(quant::int8_rows({.bits = 8}), true)), true});
  return schemes;
}

}  // namespace choral::layers
