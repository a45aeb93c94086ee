// A score for each head that joins its softmax and has no value, so that a head may look at nothing (gpt-oss's self_attn.sinks).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "layers/module.h"
#include "platform/host_view.h"

namespace choral::layers {

class AttentionSinks : public Module {
 public:
  static constexpr std::string_view kLayerName = "attention_sinks";
  struct Spec {
    std::string prefix;  // the tensor's whole name: "model.layers.0.self_attn.sinks"
    int64_t heads = 0;
    Share own;  // of the heads, those that attend here
  };
  AttentionSinks(Builder& builder, const Spec& spec) : prefix_(spec.prefix), heads_(spec.heads), own_(spec.own) {
    values_.host().resize(own_.count);
    builder.modules.push_back(this);
  }

  std::span<const float> values() const { return values_.on_device(); }

  Status load_weights(quant::WeightSource& source) override {
    std::vector<float> all(heads_);
    CHORAL_RETURN_IF_ERROR(source.read_vector(prefix_, all));
    std::copy_n(all.begin() + own_.begin, own_.count, values_.host().begin());
    return {};
  }
  Status process_weights_after_loading(const platform::Context& ctx, quant::WeightSource&) override {
    return values_.keep(ctx.session);
  }
  std::string prefix() const override { return prefix_; }
  int64_t expected_bytes(const quant::WeightRequest&) const override { return weight_bytes(); }
  int64_t weight_bytes() const override { return own_.count * static_cast<int64_t>(sizeof(float)); }
  int64_t parameters() const override { return heads_; }
  std::string format() const override { return "f32"; }
  std::string kernel_name(CpuLevel) const override { return "attention"; }

 private:
  std::string prefix_;
  int64_t heads_;
  Share own_;
  platform::KeptVector values_;
};

}  // namespace choral::layers
