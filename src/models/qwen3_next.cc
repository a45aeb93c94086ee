// Qwen3-Next and Qwen3.5: every fourth layer has attention, whose output is gated; the others are gated delta nets. All norms but
// these nets' are stored less one. Mixtures have a shared expert with a gate. The two differ in how a net's projections are
// stored.
#include "base/printable.h"
#include "models/families.h"

namespace choral::models {
namespace {

constexpr io::IntRange kHeads{1, 4096}, kHeadDim{1, 4096}, kTaps{2, kernels::CausalConv::kMostTaps};

// As layer_types says, else all but every full_attention_interval-th.
Result<std::vector<bool>> read_delta_net_layers(const io::ConfigMap& config, int64_t layers) {
  if (config.contains("layer_types")) return read_state_layers(config, layers);
  CHORAL_TRY(const int64_t interval, config.get_int_or("full_attention_interval", 4, io::kPositive));
  std::vector<bool> out(layers);
  for (int64_t i = 0; i < layers; ++i) out[i] = (i + 1) % interval != 0;
  if (interval > layers) {
    return unsupported("{} is {}, of {} layers: a model without any keys is not served here",
                       config.path_of("full_attention_interval"), interval, layers);
  }
  return out;
}

Result<DeltaNetSpec> read_delta_net_spec(const io::ConfigMap& config, int64_t layers) {
  DeltaNetSpec spec;
  auto& net = spec.layer;
  CHORAL_TRY(net.key_heads, config.get_int_or("linear_num_key_heads", 16, kHeads));
  CHORAL_TRY(net.value_heads, config.get_int_or("linear_num_value_heads", 32, kHeads));
  CHORAL_TRY(net.key_dim, config.get_int_or("linear_key_head_dim", 128, kHeadDim));
  CHORAL_TRY(net.value_dim, config.get_int_or("linear_value_head_dim", 128, kHeadDim));
  CHORAL_TRY(net.conv_taps, config.get_int_or("linear_conv_kernel_dim", 4, kTaps));
  if (net.value_heads % net.key_heads != 0) {
    return corrupt("{} ({}) is no multiple of linear_num_key_heads ({})", config.path_of("linear_num_value_heads"),
                   net.value_heads, net.key_heads);
  }
  CHORAL_TRY(net.out_proj_tiled, config.get_bool_or("linear_out_proj_tiled", false));  // of GGUF files
  CHORAL_TRY(spec.layers, read_delta_net_layers(config, layers));
  return spec;
}

// What Qwen3-Next and Qwen3.5 share.
Result<DecoderSpec> read_spec(const io::ConfigMap& config, const ModelOptions& options) {
  io::ConfigObject filled = config.object();
  if (!config.contains("head_dim")) filled.set("head_dim", int64_t{256});
  if (!config.contains("partial_rotary_factor")) filled.set("partial_rotary_factor", 0.25);
  // A mixture's layers need none.
  if (!config.contains("intermediate_size") && config.contains("moe_intermediate_size")) {
    filled.set("intermediate_size", *config.find("moe_intermediate_size"));
  }
  const io::ConfigMap whole(std::move(filled), config.source());
  CHORAL_TRY(auto spec, read_decoder_spec(whole, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  spec.attention_gate = true;
  spec.qk_norm = layers::QkNorm::kEachHead;
  spec.norm_weight = layers::NormWeight::kOnePlus;
  if (spec.hidden_act != "silu") {
    return unsupported("{} is '{}'; the convolutions of this family take silu", config.path_of("hidden_act"),
                       printable(spec.hidden_act));
  }
  CHORAL_TRY(spec.delta_net, read_delta_net_spec(config, spec.layers));
  return spec;
}

Result<MoeSpec> read_mixture(const io::ConfigMap& config, int64_t layers) {
  CHORAL_TRY(auto moe, read_moe_spec(config, layers));
  CHORAL_TRY(moe.intermediate, config.get_int_or("moe_intermediate_size", 512, kDimension));
  CHORAL_TRY(moe.shared_intermediate, config.get_int_or("shared_expert_intermediate_size", 512, kDimension));
  moe.names.shared = "shared_expert";
  moe.shared_gate = true;
  CHORAL_TRY(moe.gating.renormalise, config.get_bool_or("norm_topk_prob", true));
  return moe;
}

}  // namespace

Result<std::unique_ptr<Model>> make_qwen3_next(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_spec(config, options));
  spec.delta_net->layer.heads_in_turns = true;
  CHORAL_TRY(const int64_t experts, config.get_int_or("num_experts", 512, io::kNotNegative));
  if (experts > 0) {
    CHORAL_TRY(spec.moe, read_mixture(config, spec.layers));
    CHORAL_TRY(spec.moe->layers, read_sparse_layers(config, spec.layers));
  }
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_qwen3_5_moe(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_spec(config, options));
  CHORAL_TRY(spec.moe, read_mixture(config, spec.layers));
  spec.moe->gating.renormalise = true;
  spec.moe->layers.assign(spec.layers, true);
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_qwen3_5(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_spec(config, options));
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
