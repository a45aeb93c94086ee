#include "tools/quantize/gguf_keys.h"

#include <algorithm>
#include <cmath>

#include "models/decoder.h"
#include "models/gemma4_model.h"

namespace choral::tools {
namespace {

using kernels::RotaryParams;
using kernels::RotaryScaling;
using models::DecoderSpec;
using models::Gemma4Spec;
using models::MoeSpec;

// How an architecture says how large the experts are that every token meets.
enum class SharedExperts { kByLength, kByCount, kAsOthers };

class Keys {
 public:
  Keys(const DecoderSpec& spec, const io::GgufArchitecture& architecture, int64_t context)
      : spec_(spec), architecture_(architecture), context_(context) {}

  Result<GgufKeys> run(const Gemma4Spec* gemma4) {
    out_.metadata.set_string("general.architecture", architecture_.name);
    sizes();
    if (gemma4 != nullptr) {
      heads(*gemma4);
    } else {
      set("feed_forward_length", spec_.intermediate);
      spec_.latent ? latent_heads() : heads();
    }
    CHORAL_RETURN_IF_ERROR(rope());
    windows();
    if (spec_.moe) experts(*spec_.moe);
    if (spec_.delta_net) delta_nets();
    if (spec_.mamba2) mamba2();
    multipliers();
    return std::move(out_);
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_.name, name); }
  void set(std::string_view name, int64_t value) { out_.metadata.set_u32(key(name), static_cast<uint32_t>(value)); }
  void set(std::string_view name, double value) { out_.metadata.set_f32(key(name), static_cast<float>(value)); }
  void set(std::string_view name, bool value) { out_.metadata.set_bool(key(name), value); }
  void set(std::string_view name, const std::vector<bool>& values) { out_.metadata.set_bools(key(name), values); }
  void set(std::string_view name, const std::vector<int32_t>& values) { out_.metadata.set_i32s(key(name), values); }
  bool is(std::initializer_list<std::string_view> names) const {
    return std::find(names.begin(), names.end(), architecture_.name) != names.end();
  }

  void sizes() {
    set("block_count", spec_.layers);
    set("context_length", context_);
    set("embedding_length", spec_.hidden);
    set("vocab_size", spec_.vocab);
    const std::string_view norm = architecture_.layer_norm ? "layer_norm" : "layer_norm_rms";
    set(fmt::format("attention.{}_epsilon", norm), static_cast<double>(spec_.rms_norm_eps));
    if (spec_.sees_later) set("attention.causal", false);
  }

  void heads() {
    set("attention.head_count", spec_.heads);
    if (spec_.mamba2) {
      std::vector<int32_t> of_layers;
      for (const bool state : spec_.mamba2->layers) of_layers.push_back(state ? 0 : static_cast<int32_t>(spec_.kv_heads));
      set("attention.head_count_kv", of_layers);
    } else {
      set("attention.head_count_kv", spec_.kv_heads);
    }
    set("attention.key_length", spec_.head_dim);
    set("attention.value_length", spec_.head_dim);
    set("rope.dimension_count", spec_.rotary.rotary_dim);
  }

  // As one head of keys, which are the latents; the sizes of a head's own have names that end in _mla.
  void latent_heads() {
    const auto& latent = *spec_.latent;
    set("attention.head_count", spec_.heads);
    set("attention.head_count_kv", int64_t{1});
    if (latent.q_rank > 0) set("attention.q_lora_rank", latent.q_rank);
    set("attention.kv_lora_rank", latent.kv_rank);
    set("attention.key_length", latent.kv_rank + latent.rope_dim);
    set("attention.value_length", latent.kv_rank);
    set("attention.key_length_mla", latent.nope_dim + latent.rope_dim);
    set("attention.value_length_mla", latent.value_dim);
    set("rope.dimension_count", latent.rope_dim);
  }

  void heads(const Gemma4Spec& gemma4) {
    std::vector<int32_t> kv_heads, widths;
    for (int64_t i = 0; i < spec_.layers; ++i) {
      kv_heads.push_back(static_cast<int32_t>((is_windowed(i) ? gemma4.windowed : gemma4.full).kv_heads));
      const bool wide = gemma4.wide_shared_mlp && i >= gemma4.kv_layers;
      widths.push_back(static_cast<int32_t>(spec_.intermediate * (wide ? 2 : 1)));
    }
    set("feed_forward_length", widths);
    set("attention.head_count", spec_.heads);
    set("attention.head_count_kv", kv_heads);
    for (const char* name : {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
      set(name, gemma4.full.head_dim);
      set(fmt::format("{}_swa", name), gemma4.windowed.head_dim);
    }
    set("attention.shared_kv_layers", spec_.layers - gemma4.kv_layers);
    set("embedding_length_per_layer_input", gemma4.per_layer_width);
  }

  bool is_windowed(int64_t layer) const { return spec_.sliding_window[layer] > 0; }

  // Where not all are alike, each layer is said to have the window or not.
  void windows() {
    const auto& windows = spec_.sliding_window;
    const int64_t most = *std::max_element(windows.begin(), windows.end());
    if (most == 0) return;
    set("attention.sliding_window", spec_.sees_later ? 2 * (most - 1) : most);  // half of it to each side, and the token
    if (std::all_of(windows.begin(), windows.end(), [](int64_t window) { return window > 0; })) return;
    std::vector<bool> pattern;
    for (int64_t i = 0; i < spec_.layers; ++i) pattern.push_back(is_windowed(i));
    set("attention.sliding_window_pattern", pattern);
  }

  Status rope() {
    const RotaryParams& rotary = spec_.rotary;
    set("rope.freq_base", rotary.theta);
    if (spec_.window_rotary) set("rope.freq_base_swa", spec_.window_rotary->theta);
    const bool turns =
        spec_.rotates.empty() || std::find(spec_.rotates.begin(), spec_.rotates.end(), true) != spec_.rotates.end();
    if (architecture_.mamba2) set("rope.scaling.finetuned", turns);
    switch (rotary.scaling) {
      case RotaryScaling::kLlama3: return llama3_factors();
      case RotaryScaling::kLongRope: return long_rope();
      case RotaryScaling::kLinear:
        out_.metadata.set_string(key("rope.scaling.type"), "linear");
        set("rope.scaling.factor", rotary.factor);
        break;
      case RotaryScaling::kYarn: yarn(); break;
      case RotaryScaling::kNone:
      case RotaryScaling::kDynamic: break;
    }
    if (is({"qwen35", "qwen35moe"})) set("rope.dimension_sections", sections());
    if (!rotary.frequency_divisors.empty()) add_factors("rope_freqs.weight", rotary.frequency_divisors);
    return {};
  }

  // Which pairs turn by an image's time, row and column, as llama.cpp wants to know of this family. Of a text all three are its
  // position, so that it is of no account how the pairs are shared.
  std::vector<int32_t> sections() const {
    const auto pairs = static_cast<int32_t>(spec_.rotary.rotary_dim / 2);
    return {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
  }

  void yarn() {
    const RotaryParams& rotary = spec_.rotary;
    out_.metadata.set_string(key("rope.scaling.type"), "yarn");
    set("rope.scaling.factor", rotary.factor);
    set("rope.scaling.original_context_length", rotary.original_max_position);
    set("rope.scaling.yarn_beta_fast", rotary.beta_fast);
    set("rope.scaling.yarn_beta_slow", rotary.beta_slow);
    if (rotary.attention_factor) set("rope.scaling.yarn_attn_factor", *rotary.attention_factor);
    if (spec_.latent && rotary.mscale_all_dim.value_or(0) != 0) {
      set("rope.scaling.yarn_log_multiplier", 0.1 * *rotary.mscale_all_dim);
    }
    if (spec_.query_scale) set("attention.temperature_scale", spec_.query_scale->beta);
  }

  // What each frequency is divided by.
  Status llama3_factors() {
    RotaryParams params = spec_.rotary;
    params.max_positions = 1;
    CHORAL_TRY(const auto scaled, kernels::RotaryTable::make(params));
    params.scaling = RotaryScaling::kNone;
    CHORAL_TRY(const auto plain, kernels::RotaryTable::make(params));
    std::vector<float> factors;
    for (size_t i = 0; i < plain.inv_freq().size(); ++i) factors.push_back(plain.inv_freq()[i] / scaled.inv_freq()[i]);
    add_factors("rope_freqs.weight", factors);
    return {};
  }

  Status long_rope() {
    RotaryParams params = spec_.rotary;
    params.max_positions = 1;
    CHORAL_TRY(const auto table, kernels::RotaryTable::make(params));
    set("rope.scaling.original_context_length", params.original_max_position);
    set("rope.scaling.attn_factor", static_cast<double>(table.attention_factor()));
    add_factors("rope_factors_long.weight", params.long_factors);
    add_factors("rope_factors_short.weight", params.short_factors);
    return {};
  }

  // A pair that does not turn has a frequency of nothing, for which files have a number that is large enough.
  void add_factors(std::string tensor, std::vector<float> values) {
    constexpr float kTurnsNot = 1e30F;
    for (float& value : values) value = std::min(value, kTurnsNot);
    out_.factors.push_back({std::move(tensor), std::move(values)});
  }

  void experts(const MoeSpec& moe) {
    set("expert_count", moe.experts);
    set("expert_used_count", moe.gating.top_k);
    set("expert_feed_forward_length", moe.intermediate);
    const bool sigmoid = moe.gating.scoring == kernels::GateScoring::kSigmoid;
    if (architecture_.sigmoid_gating || architecture_.latent) set("expert_gating_func", int64_t{sigmoid ? 2 : 1});
    shared_experts(moe);

    const auto begin = moe.layers.begin(), first = std::find(begin, moe.layers.end(), true);
    const int64_t dense = first - begin;
    if (architecture_.latent || is({"glm4moe"})) {
      set("leading_dense_block_count", dense);
      set("expert_weights_norm", moe.gating.renormalise);
      set("expert_weights_scale", static_cast<double>(moe.gating.routed_scaling));
      set("expert_group_count", moe.gating.groups);
      set("expert_group_used_count", moe.gating.top_groups);
    }
    if (is({"ernie4_5-moe"})) {
      const auto second = first == moe.layers.end() ? first : std::find(first + 1, moe.layers.end(), true);
      set("leading_dense_block_count", dense);
      set("interleave_moe_layer_step", second == moe.layers.end() ? int64_t{1} : second - first);
    }
    if (is({"llama4"})) set("interleave_moe_layer_step", dense + 1);
  }

  void shared_experts(const MoeSpec& moe) {
    const SharedExperts how = architecture_.latent || is({"glm4moe", "ernie4_5-moe"}) ? SharedExperts::kByCount
                              : is({"llama4"})                                        ? SharedExperts::kAsOthers
                                                                                      : SharedExperts::kByLength;
    if (how == SharedExperts::kByCount) set("expert_shared_count", moe.shared_intermediate / moe.intermediate);
    if (how == SharedExperts::kByLength && moe.shared_intermediate > 0) {
      set("expert_shared_feed_forward_length", moe.shared_intermediate);
    }
  }

  void state_sizes(int64_t groups, int64_t heads, int64_t inner, int64_t state, int64_t taps) {
    set("ssm.group_count", groups);
    set("ssm.time_step_rank", heads);
    set("ssm.inner_size", inner);
    set("ssm.state_size", state);
    set("ssm.conv_kernel", taps);
  }

  void delta_nets() {
    const auto& [net, layers] = *spec_.delta_net;
    state_sizes(net.key_heads, net.value_heads, net.value_heads * net.value_dim, net.key_dim, net.conv_taps);
    set("full_attention_interval", int64_t{std::find(layers.begin(), layers.end(), false) - layers.begin() + 1});
  }

  void mamba2() {
    const auto& layer = spec_.mamba2->layer;
    state_sizes(layer.groups, layer.heads, layer.heads * layer.head_dim, layer.state_dim, layer.conv_taps);
  }

  void multipliers() {
    if (spec_.attention_softcap > 0) set("attn_logit_softcapping", static_cast<double>(spec_.attention_softcap));
    if (spec_.logit_softcap > 0) set("final_logit_softcapping", static_cast<double>(spec_.logit_softcap));
    if (architecture_.layer_norm) set("logit_scale", static_cast<double>(spec_.logit_scale));
    if (!architecture_.name.starts_with("granite")) return;
    if (spec_.attention_scale) set("attention.scale", static_cast<double>(*spec_.attention_scale));
    set("embedding_scale", static_cast<double>(spec_.embedding_scale));
    set("residual_scale", static_cast<double>(spec_.residual_multiplier));
    set("logit_scale", 1 / static_cast<double>(spec_.logit_scale));
  }

  const DecoderSpec& spec_;
  const io::GgufArchitecture& architecture_;
  int64_t context_;
  GgufKeys out_;
};

}  // namespace

Result<GgufKeys> gguf_keys(const models::ModelSpec& spec, const io::GgufArchitecture& architecture, int64_t context) {
  if (const auto* gemma4 = std::get_if<const Gemma4Spec*>(&spec)) {
    return Keys((*gemma4)->decoder, architecture, context).run(*gemma4);
  }
  return Keys(*std::get<const DecoderSpec*>(spec), architecture, context).run(nullptr);
}

}  // namespace choral::tools
