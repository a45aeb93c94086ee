// Gemma 4 (text), of all sizes: with per-layer embeddings and shared keys (E2B, E4B), dense (31B; 12B, called unified), with
// experts (26B-A4B). What differs from layer to layer is in gemma4_model.h; this file reads it from the config.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/printable.h"
#include "models/families.h"
#include "models/gemma4_model.h"
#include "models/rope_config.h"

namespace choral::models {
namespace {

// What the two configuration classes take for absent fields.
struct Gemma4Defaults {
  int64_t window = 0;
  int64_t per_layer_width = 0;
};

constexpr int64_t kFullHeadDim = 512;  // of layers without a window, where the file says nothing
constexpr int64_t kGemma4Pattern = 6;  // every so many layers one has no window

bool is_null_in(const io::ConfigMap& config, std::string_view key) {
  return config.object().find(key) != nullptr && !config.contains(key);
}

Status check_gemma4_causal(const io::ConfigMap& config) {
  constexpr std::string_view kKey = "use_bidirectional_attention";
  if (!config.contains(kKey)) return {};
  CHORAL_TRY(const std::string who, config.get_string(kKey));
  if (who == "vision") return {};  // images see each other, words do not
  return unsupported("{} is '{}': only causal models run here", config.path_of(kKey), printable(who));
}

// The last layer has no window, whatever the file says.
Result<std::vector<int64_t>> read_gemma4_windows(const io::ConfigMap& config, int64_t layers, int64_t absent) {
  CHORAL_TRY(auto windows, read_alternating_windows(config, layers, kGemma4Pattern, absent));
  windows.back() = 0;
  return windows;
}

// Newer files name the layers that differ from the others.
Status read_named_layers(const io::ConfigMap& all, std::vector<Gemma4Heads>& heads) {
  const auto layers = std::ssize(heads);
  const Gemma4Heads usual = heads.front();
  for (const auto& member : all.members()) {
    const bool digits =
        !member.key.empty() && member.key.size() <= 6 && member.key.find_first_not_of("0123456789") == std::string::npos;
    const int64_t layer = digits ? std::stoll(member.key) : layers;
    if (layer >= layers) {
      return corrupt("{}: the model has no such layer, but {}", all.path_of(printable(member.key)), layers);
    }
    CHORAL_TRY(const io::ConfigMap own, all.get_map(member.key));
    for (const auto& field : own.members()) {
      if (field.key != "head_dim" && field.key != "num_key_value_heads")
        return unsupported("{}: layers differ in head_dim and num_key_value_heads here", own.path_of(printable(field.key)));
    }
    CHORAL_TRY(heads[layer].head_dim, own.get_int_or("head_dim", usual.head_dim, kDimension));
    CHORAL_TRY(heads[layer].kv_heads, own.get_int_or("num_key_value_heads", usual.kv_heads, kDimension));
  }
  return {};
}

// Of each layer. Older files say the heads of layers without a window beside those of the others.
Result<std::vector<Gemma4Heads>> read_layers_heads(const io::ConfigMap& config, const Gemma4Spec& spec) {
  constexpr std::string_view kNamed = "per_layer_config";
  const DecoderSpec& decoder = spec.decoder;
  std::vector<Gemma4Heads> heads(decoder.layers, {decoder.head_dim, decoder.kv_heads});
  if (is_null_in(config, kNamed)) return heads;  // all are alike
  if (config.contains(kNamed)) {
    CHORAL_TRY(const io::ConfigMap named, config.get_map(kNamed));
    CHORAL_RETURN_IF_ERROR(read_named_layers(named, heads));
    return heads;
  }
  Gemma4Heads full = heads.front();
  CHORAL_TRY(full.head_dim, config.get_int_or("global_head_dim", kFullHeadDim, kDimension));
  if (spec.keys_are_values) {
    CHORAL_TRY(full.kv_heads, config.get_int_or("num_global_key_value_heads", full.kv_heads, kDimension));
  }
  for (int64_t i = 0; i < decoder.layers; ++i) {
    if (decoder.sliding_window[i] == 0) heads[i] = full;
  }
  return heads;
}

// Layers of one kind must be alike: they share keys, and a table of rotations.
Status read_gemma4_heads(const io::ConfigMap& config, Gemma4Spec& spec) {
  CHORAL_TRY(const auto heads, read_layers_heads(config, spec));
  const auto& windows = spec.decoder.sliding_window;
  const auto first_windowed = std::find_if(windows.begin(), windows.end(), [](int64_t window) { return window > 0; });
  spec.full = heads.back();
  spec.windowed = first_windowed == windows.end() ? spec.full : heads[first_windowed - windows.begin()];
  for (size_t i = 0; i < heads.size(); ++i) {
    const Gemma4Heads& kind = windows[i] > 0 ? spec.windowed : spec.full;
    if (kind.head_dim != heads[i].head_dim || kind.kv_heads != heads[i].kv_heads) {
      return unsupported("{}: layer {} has heads of another size or number than others of its kind",
                         config.path_of("per_layer_config"), i);
    }
    if (spec.decoder.heads % kind.kv_heads != 0) {
      return corrupt("{} ({}) is no multiple of the {} heads of keys of layer {}", config.path_of("num_attention_heads"),
                     spec.decoder.heads, kind.kv_heads, i);
    }
  }
  return {};
}

Status read_shared_keys(const io::ConfigMap& config, Gemma4Spec& spec) {
  const auto& windows = spec.decoder.sliding_window;
  CHORAL_TRY(const int64_t shared, config.get_int_or("num_kv_shared_layers", 0, {0, spec.decoder.layers - 1}));
  spec.kv_layers = spec.decoder.layers - shared;
  for (int64_t i = spec.kv_layers; i < spec.decoder.layers; ++i) {
    const auto alike = [&](int64_t window) { return (window > 0) == (windows[i] > 0); };
    if (std::none_of(windows.begin(), windows.begin() + spec.kv_layers, alike)) {
      return corrupt("{} is {}: layer {} would look at the keys of a layer of its kind, and none has any",
                     config.path_of("num_kv_shared_layers"), shared, i);
    }
  }
  return {};
}

// Of layers without a window. "proportional" turns the first part of the pairs, and the others by nothing.
Result<kernels::RotaryParams> read_full_rotary(const io::ConfigMap& config, int64_t head_dim, int64_t max_positions) {
  kernels::RotaryParams rotary{.head_dim = head_dim, .rotary_dim = head_dim, .max_positions = max_positions};
  const bool said = config.contains("rope_theta") || config.object().find("rope_scaling") != nullptr;
  CHORAL_TRY(rotary.theta, said ? config.get_double("rope_theta") : Result<double>(1e6));
  CHORAL_TRY(const auto scaling, config.get_map_or_empty("rope_scaling"));
  CHORAL_TRY(const std::string type, scaling.get_string_or("rope_type", said ? "default" : "proportional"));
  if (type == "default") return rotary;
  if (type == "freq_factors") {  // GGUF's way to say the same
    CHORAL_TRY(const auto divisors, scaling.get_doubles("freq_factors"));
    rotary.frequency_divisors.assign(divisors.begin(), divisors.end());
    return rotary;
  }
  if (type != "proportional") {
    return unsupported("{} is '{}'; known in this family: default, proportional", scaling.path_of("rope_type"), printable(type));
  }
  CHORAL_TRY(const double share, config.get_double_or("partial_rotary_factor", said ? 1.0 : 0.25, {0, 1}));
  CHORAL_TRY(const double factor, scaling.get_double_or("factor", 1.0, {1e-6, 1e6}));
  const auto turned = static_cast<int64_t>(std::floor(share * static_cast<double>(head_dim) / 2));
  rotary.frequency_divisors.assign(head_dim / 2, std::numeric_limits<float>::infinity());
  std::fill_n(rotary.frequency_divisors.begin(), turned, static_cast<float>(factor));
  return rotary;
}

Status read_gemma4_rotary(const io::ConfigMap& config, Gemma4Spec& spec) {
  DecoderSpec& decoder = spec.decoder;
  CHORAL_TRY(decoder.rotary, read_full_rotary(config, spec.full.head_dim, decoder.max_positions));
  const int64_t head_dim = spec.windowed.head_dim;
  decoder.window_rotary =
      kernels::RotaryParams{.head_dim = head_dim, .rotary_dim = head_dim, .max_positions = decoder.max_positions};
  CHORAL_TRY(decoder.window_rotary->theta, config.get_double_or("rope_local_base_freq", 10000));
  return {};
}

Status read_gemma4_experts(const io::ConfigMap& config, DecoderSpec& decoder) {
  CHORAL_TRY(const bool has, config.get_bool_or("enable_moe_block", false));
  if (!has) return {};
  CHORAL_TRY(decoder.moe, read_moe_spec(config, decoder.layers));
  CHORAL_TRY(decoder.moe->intermediate, config.get_int("moe_intermediate_size", kDimension));
  decoder.moe->names.router = "router.proj";
  decoder.moe->gating.renormalise = true;
  return {};
}

Status read_per_layer_embedding(const io::ConfigMap& config, int64_t absent, Gemma4Spec& spec) {
  constexpr std::string_view kWidth = "hidden_size_per_layer_input", kVocabulary = "vocab_size_per_layer_input";
  if (is_null_in(config, kWidth)) return {};
  CHORAL_TRY(spec.per_layer_width, config.get_int_or(kWidth, absent, {0, kDimension.max / spec.decoder.layers}));
  if (spec.per_layer_width == 0) return {};
  CHORAL_TRY(const int64_t vocabulary, config.get_int_or(kVocabulary, spec.decoder.vocab, kDimension));
  if (vocabulary == spec.decoder.vocab) return {};
  return unsupported("{} is {}, for a vocabulary of {}; a row for each token is wanted", config.path_of(kVocabulary), vocabulary,
                     spec.decoder.vocab);
}

// Without what this family says in its own way, of its rotation and of who sees whom.
io::ConfigMap without_own_fields(const io::ConfigMap& config) {
  io::ConfigObject out = config.object();
  for (const char* key : {"rope_scaling", "partial_rotary_factor", "use_bidirectional_attention"}) out.erase(key);
  return io::ConfigMap(std::move(out), config.source());
}

Result<std::unique_ptr<Model>> make_gemma4_of(const io::ConfigMap& config, const ModelOptions& options,
                                              const Gemma4Defaults& defaults) {
  CHORAL_RETURN_IF_ERROR(check_gemma4_causal(config));
  if (!config.contains("head_dim")) return corrupt("{} is missing", config.path_of("head_dim"));
  Gemma4Spec spec;
  DecoderSpec& decoder = spec.decoder;
  CHORAL_TRY(decoder, read_decoder_spec(without_own_fields(config), options));
  CHORAL_TRY(decoder.hidden_act, config.get_string_or("hidden_activation", "gelu_pytorch_tanh"));
  CHORAL_TRY(decoder.qkv_bias, config.get_bool_or("attention_bias", false));
  CHORAL_TRY(decoder.tie_word_embeddings, config.get_bool_or("tie_word_embeddings", true));
  CHORAL_TRY(decoder.logit_softcap, read_softcap(config, "final_logit_softcapping", 0));
  CHORAL_TRY(decoder.sliding_window, read_gemma4_windows(config, decoder.layers, defaults.window));
  decoder.embedding_scale = std::sqrt(static_cast<float>(decoder.hidden));
  decoder.attention_scale = 1;
  CHORAL_TRY(spec.keys_are_values, config.get_bool_or("attention_k_eq_v", false));
  CHORAL_TRY(spec.wide_shared_mlp, config.get_bool_or("use_double_wide_mlp", false));
  CHORAL_RETURN_IF_ERROR(read_gemma4_heads(config, spec));
  CHORAL_RETURN_IF_ERROR(read_shared_keys(config, spec));
  CHORAL_RETURN_IF_ERROR(read_gemma4_rotary(config, spec));
  CHORAL_RETURN_IF_ERROR(read_gemma4_experts(config, decoder));
  CHORAL_RETURN_IF_ERROR(read_per_layer_embedding(config, defaults.per_layer_width, spec));
  return make_gemma4_model(std::move(spec), options);
}

}  // namespace

Result<std::unique_ptr<Model>> make_gemma4(const io::ConfigMap& config, const ModelOptions& options) {
  return make_gemma4_of(config, options, {.window = 512, .per_layer_width = 256});
}

Result<std::unique_ptr<Model>> make_gemma4_unified(const io::ConfigMap& config, const ModelOptions& options) {
  return make_gemma4_of(config, options, {.window = 1024, .per_layer_width = 0});
}

}  // namespace choral::models
