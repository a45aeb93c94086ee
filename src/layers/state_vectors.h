// What a layer that keeps a state has besides its projections: the convolution in front of its recurrence, and of each head the
// decay, the bias of the steps and, where the layer has it, what of x goes past the state.
#pragma once

#include <optional>
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
    // What a rank has of them alone. Empty and none: all.
    std::vector<Share> own_channels = {};
    std::optional<Share> own_heads = {};
  };
  StateVectors(Builder& builder, const Spec& spec);

  kernels::CausalConv conv() const { return {conv_, spec_.taps, conv_bias_}; }
  std::span<const float> decay() const { return decay_; }  // e^A_log
  std::span<const float> dt_bias() const { return dt_bias_; }
  std::span<const float> skip() const { return skip_; }

  Status load_weights(quant::WeightSource& source) override;
  Status process_weights_after_loading(const platform::Context&, quant::WeightSource&) override { return {}; }
  std::string prefix() const override { return spec_.prefix + ".conv1d"; }
  int64_t expected_bytes(const quant::WeightRequest&) const override { return weight_bytes(); }
  int64_t weight_bytes() const override {
    const int64_t floats =
        std::ssize(conv_) + std::ssize(conv_bias_) + std::ssize(decay_) + std::ssize(dt_bias_) + std::ssize(skip_);
    return floats * static_cast<int64_t>(sizeof(float));
  }
  // Of all ranks.
  int64_t parameters() const override {
    return spec_.channels * (spec_.taps + (spec_.conv_bias ? 1 : 0)) + spec_.heads * (spec_.skip ? 3 : 2);
  }
  std::string format() const override { return "f32"; }
  std::string kernel_name(CpuLevel) const override { return "causal_conv1d"; }

 private:
  Status load_decay(quant::WeightSource& source);
  Status load_conv(quant::WeightSource& source);
  // Of a vector of all heads or channels, the own ones.
  Status read_own(quant::WeightSource& source, std::string_view name, int64_t all, std::span<const Share> own,
                  std::span<float> out) const;

  Spec spec_;
  std::vector<Share> channels_, heads_;  // the own ones
  std::vector<float> conv_;              // [taps, own channels]
  std::vector<float> conv_bias_, decay_, dt_bias_, skip_;
};

}  // namespace choral::layers
