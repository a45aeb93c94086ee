// y = x·rsqrt(mean(x²) + eps)·w over rows, or over each head's part of a row (q_norm and k_norm of Qwen3). Where the checkpoint
// has `<prefix>.bias`, as a family's norms have or ModelSlim's with smoothed outliers, that is added to y.
// CustomOp "rms_norm". A class that overrides it defines forward, forward_heads and forward_in_parts, which by default run the
// form bound here.
// GemmaRMSNorm, CustomOp "gemma_rms_norm", is the same of a checkpoint that stores w - 1.
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include "kernels/norm/rms_norm.h"
#include "layers/module.h"
#include "lora/plan/punica_wrapper.h"
#include "platform/host_view.h"

namespace choral::layers {

// How a checkpoint, and an adapter that replaces the norm, stores its weight.
enum class NormWeight {
  kPlain,    // w
  kOnePlus,  // w - 1: Gemma
};

class RMSNorm : public Module, public platform::CustomOp {
 public:
  static constexpr std::string_view kLayerName = "rms_norm";
  struct Spec {
    std::string prefix;
    int64_t size = 0;
    float eps = 1e-6F;
    bool biased = false;      // the checkpoint must have a bias
    bool weighted = true;     // false: w is 1, of which no checkpoint says anything
    int64_t heads = 1;        // the checkpoint, and adapters, have w as so many rows, side by side here
    std::string tensor = {};  // what a checkpoint calls w, where that is not "<prefix>.weight"; adapters do not know it then
    float factor = 1;         // w is so many times what is stored
  };
  RMSNorm(Builder& builder, const Spec& spec);

  // x and y may be the same matrix. Rows of adapters that bring their own norm use its weight. [rows, size]
  virtual void forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                       const lora::PunicaWrapper* lora = nullptr) const;
  // Each run of `size` columns of x is normed by itself, in place. [rows, heads·size]
  virtual void forward_heads(const platform::Context& ctx, MatrixView<float> x, const lora::PunicaWrapper* lora = nullptr) const;
  // Each of so many equal parts of a row is normed by itself, by its own part of w, in place. [rows, size]
  virtual void forward_in_parts(const platform::Context& ctx, MatrixView<float> x, int64_t parts,
                                const lora::PunicaWrapper* lora = nullptr) const;

  // Calls run(row, count, vectors) for runs of rows that cover all of [0, rows): vectors[i] are norms[i]'s there, its own or
  // those of the rows' adapter. An operator called run by run treats a row the same way whoever shares the step.
  using Vectors = lora::PunicaWrapper::NormVectors;
  template <size_t kNorms, class Run>
  static void for_each_run(const platform::Context& ctx, const std::array<const RMSNorm*, kNorms>& norms, int64_t rows,
                           const lora::PunicaWrapper* lora, Run run) {
    static_assert(kNorms <= lora::PunicaWrapper::kNormsAtOnce);
    std::array<Vectors, kNorms> own;
    std::array<int, kNorms> targets;
    for (size_t i = 0; i < kNorms; ++i) {
      own[i] = {norms[i]->weight(), norms[i]->bias()};
      targets[i] = norms[i]->lora_target_;
    }
    const bool fixed = std::all_of(targets.begin(), targets.end(), [](int target) { return target < 0; });
    if (lora == nullptr || fixed) return run(0, rows, own);
    lora->for_each_norm(ctx, targets, rows, [&](int64_t row, int64_t count, std::span<const Vectors> replaced) {
      auto vectors = own;
      for (size_t i = 0; i < kNorms; ++i) {
        if (!replaced[i].weight.empty()) vectors[i].weight = replaced[i].weight;
        if (!replaced[i].bias.empty()) vectors[i].bias = replaced[i].bias;
      }
      run(row, count, vectors);
    });
  }

  // For fused operators of `provider`: they may stand for this layer, with for_each_run().
  virtual bool may_fuse(std::string_view provider) const;
  int64_t size() const { return std::ssize(weight_.host()); }
  std::span<const float> weight() const { return weight_.on_device(); }
  std::span<const float> bias() const { return bias_.on_device(); }  // empty: the checkpoint has none
  float eps() const { return eps_; }

  Status load_weights(quant::WeightSource& source) override;
  Status process_weights_after_loading(const platform::Context& ctx, quant::WeightSource&) override;
  std::string prefix() const override { return prefix_; }
  int64_t expected_bytes(const quant::WeightRequest&) const override { return weight_bytes(); }
  int64_t weight_bytes() const override { return parameters() * static_cast<int64_t>(sizeof(float)); }
  int64_t parameters() const override { return weighted_ ? size() + std::ssize(bias_.host()) : 0; }
  std::string format() const override { return "f32"; }
  std::string kernel_name(CpuLevel) const override { return std::string(platform::op_form_name(form())); }

 protected:
  // `stored_less`: what the checkpoint and adapters have subtracted from w.
  RMSNorm(Builder& builder, const Spec& spec, std::string_view op_name, float stored_less);

 private:
  std::string prefix_, tensor_;
  int64_t heads_;
  bool biased_, weighted_;
  float eps_, factor_;
  float stored_less_;
  platform::KeptVector weight_, bias_;
  int lora_target_ = -1;  // none: adapters do not change it
  const platform::OpOf<platform::ops::RmsNorm>& norm_;
  const platform::OpOf<platform::ops::RmsNormHeads>& norm_heads_;
  const platform::OpOf<platform::ops::AddBias>& add_bias_;
};

class GemmaRMSNorm : public RMSNorm {
 public:
  static constexpr std::string_view kLayerName = "gemma_rms_norm";
  GemmaRMSNorm(Builder& builder, const Spec& spec) : RMSNorm(builder, spec, kLayerName, 1.0F) {}
};

// The class for weights that are stored in this form.
std::unique_ptr<RMSNorm> make_rms_norm(Builder& builder, NormWeight form, const RMSNorm::Spec& spec);

}  // namespace choral::layers
