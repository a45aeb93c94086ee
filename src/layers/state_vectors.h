// What a layer that keeps a state has besides its projections: the convolution in front of its recurrence, and of each head the
// decay, the bias of the steps and, where the layer has it, what of x goes past the state.
#pragma once

#include <string>
#include <vector>

#include "kernels/recurrent/causal_conv1d.h"
#include "layers/module.h"

namespace choral::layers {

class StateVectors : public Module {
 public:
  static constexpr std::string_view kLayerName = "state_vectors";
  struct Spec {
    std::string prefix;  // of the layer: has conv1d.weight, dt_bias, and A_log or A, which is -e^A_log
    int64_t channels = 0, taps = 0, heads = 0;
    bool conv_bias = false;  // it has conv1d.bias too,
    bool skip = false;       // and D
  };
  StateVectors(Builder& builder, const Spec& spec);

  kernels::CausalConv conv() const { return {conv_, taps_, conv_bias_}; }
  std::span<const float> decay() const { return decay_; }  // e^A_log
  std::span<const float> dt_bias() const { return dt_bias_; }
  std::span<const float> skip() const { return skip_; }

  Status load_weights(quant::WeightSource& source) override;
  Status process_weights_after_loading(const platform::Context&, quant::WeightSource&) override { return {}; }
  std::string prefix() const override { return prefix_ + ".conv1d"; }
  int64_t expected_bytes(const quant::WeightRequest&) const override { return weight_bytes(); }
  int64_t weight_bytes() const override { return parameters() * static_cast<int64_t>(sizeof(float)); }
  int64_t parameters() const override {
    return std::ssize(conv_) + std::ssize(conv_bias_) + std::ssize(decay_) + std::ssize(dt_bias_) + std::ssize(skip_);
  }
  std::string format() const override { return "f32"; }
  std::string kernel_name(CpuLevel) const override { return "causal_conv1d"; }

 private:
  Status load_decay(quant::WeightSource& source);
  Status load_conv(quant::WeightSource& source);

  std::string prefix_;
  int64_t channels_, taps_;
  std::vector<float> conv_;  // [taps, channels]
  std::vector<float> conv_bias_, decay_, dt_bias_, skip_;
};

}  // namespace choral::layers
