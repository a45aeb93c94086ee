// gpt-oss: sinks beside the keys, a window in every other layer, biases of all projections, and a mixture of experts in every
// layer. The router's best share a token by the softmax of their logits alone; experts have a swiglu of their own, with limits.
#include "models/families.h"

namespace choral::models {
namespace {

constexpr int64_t kGptOssWindow = 128;
constexpr io::DoubleRange kPositiveNumber{1e-3, 1e6};

// Fields whose absence would mean the largest model's numbers, which no file leaves to be guessed.
Status check_present(const io::ConfigMap& config) {
  for (const std::string_view key : {"head_dim", "num_key_value_heads", "rope_scaling"}) {
    if (config.object().find(key) == nullptr) return corrupt("{} is missing", config.path_of(key));
  }
  return {};
}

Result<kernels::ClampedSwiglu> read_swiglu(const io::ConfigMap& config) {
  CHORAL_TRY(const std::string act, config.get_string_or("hidden_act", "silu"));
  if (act != "silu") return unsupported("{} is '{}'; gpt-oss has silu", config.path_of("hidden_act"), act);
  CHORAL_TRY(const double alpha, config.get_double_or("swiglu_alpha", 1.702, kPositiveNumber));
  CHORAL_TRY(const double limit, config.get_double_or("swiglu_limit", 7, kPositiveNumber));
  return kernels::ClampedSwiglu{.alpha = static_cast<float>(alpha), .limit = static_cast<float>(limit)};
}

}  // namespace

Result<std::unique_ptr<Model>> make_gpt_oss(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_RETURN_IF_ERROR(check_present(config));
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  if (!config.contains("rms_norm_eps")) spec.rms_norm_eps = 1e-5F;
  if (!config.contains("rope_theta")) spec.rotary.theta = 150000;
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", true));
  spec.output_bias = spec.qkv_bias;
  spec.attention_sinks = true;
  CHORAL_TRY(spec.sliding_window, read_alternating_windows(config, spec.layers, 2, kGptOssWindow));

  CHORAL_TRY(spec.moe, read_moe_spec(config, spec.layers));
  spec.moe->names.router = "router";
  spec.moe->intermediate = spec.intermediate;
  spec.moe->bias = true;
  CHORAL_TRY(spec.moe->swiglu, read_swiglu(config));
  spec.moe->gating.renormalise = true;  // a softmax of the chosen is that of all, renormalised
  spec.moe->layers.assign(spec.layers, true);
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
