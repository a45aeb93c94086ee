// What a decoder layer's result is multiplied by, one number of the checkpoint's (Gemma 4's layer_scalar); 1 where it has none.
#pragma once

#include <string>

#include "layers/graph.h"

namespace choral::layers {

class LayerScale : public Module, public PluggedBlock {
 public:
  static constexpr std::string_view kLayerName = "layer_scale";
  struct Spec {
    std::string prefix;  // the tensor's whole name: "model.layers.0.layer_scalar"
  };
  LayerScale(Builder& builder, const Spec& spec) : prefix_(spec.prefix) { builder.modules.push_back(this); }

  // y = scale·y; x is not read.
  void forward(const platform::Context& ctx, const ForwardBatch&, MatrixView<const float>, bool,
               MatrixView<float> y) const override {
    ctx.ops.scale(ctx, y, scale_);
  }

  Status load_weights(quant::WeightSource& source) override {
    return source.contains(prefix_) ? source.read_vector(prefix_, {&scale_, 1}) : Status();
  }
  Status process_weights_after_loading(const platform::Context&, quant::WeightSource&) override { return {}; }
  std::string prefix() const override { return prefix_; }
  int64_t expected_bytes(const quant::WeightRequest&) const override { return weight_bytes(); }
  int64_t weight_bytes() const override { return sizeof scale_; }
  int64_t parameters() const override { return 1; }
  std::string format() const override { return "f32"; }
  std::string kernel_name(CpuLevel) const override { return "scale"; }

 private:
  std::string prefix_;
  float scale_ = 1;
};

}  // namespace choral::layers
