// y = x·rsqrt(mean(x²) + eps)·w over rows, or over each head's part of a row (q_norm and k_norm of Qwen3).
// CustomOp "rms_norm": the platform's kernel, or the plain loop when it is switched off.
#pragma once

#include <string>
#include <vector>

#include "layers/module.h"
#include "lora/punica_wrapper.h"

namespace choral::layers {

class RMSNorm : public Module, public platform::CustomOp {
 public:
  RMSNorm(Builder& builder, std::string prefix, int64_t size, float eps);

  // x and y may be the same matrix. Rows of adapters that bring their own norm use its weight. [rows, size]
  void forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
               const lora::PunicaWrapper* lora = nullptr) const;
  // Each run of `size` columns of x is normed by itself, in place. [rows, heads·size]
  void forward_heads(const platform::Context& ctx, MatrixView<float> x, const lora::PunicaWrapper* lora = nullptr) const;

  Status load_weights(quant::WeightSource& source) override;
  Status process_weights_after_loading(const platform::Context&, quant::WeightSource&) override { return {}; }
  std::string prefix() const override { return prefix_; }
  int64_t weight_bytes() const override { return static_cast<int64_t>(weight_.size() * sizeof(float)); }
  int64_t parameters() const override { return static_cast<int64_t>(weight_.size()); }
  std::string format() const override { return "f32"; }
  std::string kernel_name(CpuLevel) const override { return std::string(platform::op_form_name(form())); }

 private:
  using Weight = std::span<const float>;
  void run_native(const platform::Context& ctx, MatrixView<const float> x, Weight weight, MatrixView<float> y) const;
  void run_op(const platform::Context& ctx, MatrixView<const float> x, Weight weight, MatrixView<float> y) const;
  void run_heads(const platform::Context& ctx, MatrixView<float> x, Weight weight) const;

  std::string prefix_;
  float eps_;
  std::vector<float> weight_;
  int lora_target_;
  void (RMSNorm::*run_)(const platform::Context&, MatrixView<const float>, Weight, MatrixView<float>) const;
};

}  // namespace choral::layers
