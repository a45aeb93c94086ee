#include <algorithm>

#include "base/printable.h"
#include "models/families.h"
#include "models/rope_config.h"
#include "platform/platform.h"

namespace choral::models {
namespace {

constexpr io::IntRange kLayers{1, 4096};
constexpr io::IntRange kExperts{1, 4096};
constexpr int64_t kExpertsOfModel = 1 << 16;  // each is an object of its own
constexpr io::DoubleRange kEpsilon{0, 1};     // below 0 a small row would have no root

}  // namespace

Result<bool> read_sees_later(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(const bool causal, config.get_bool_or("is_causal", true));
  CHORAL_TRY(const bool bidirectional, config.get_bool_or("use_bidirectional_attention", false));
  if (causal && !bidirectional) return false;
  const auto key = config.path_of(bidirectional ? "use_bidirectional_attention" : "is_causal");
  if (options.head.kind == HeadKind::kTokens) {
    return unsupported(
        "{}: each token of this model sees those after it too, so it gives embeddings or classes and no text, but "
        "its class is one for text (…ForCausalLM)",
        key);
  }
  if (&options.session.platform() != &platform::cpu_platform())
    return unsupported("{}: such models are computed on the CPU alone; choose --device cpu", key);
  return true;
}

Result<std::vector<layers::EmbeddingLayers::Spec>> read_embedding_layers(const io::ConfigMap& config, int64_t hidden) {
  std::vector<layers::EmbeddingLayers::Spec> specs;
  if (!config.contains("embedding_layers")) return specs;
  CHORAL_TRY(const auto layers, config.get_maps("embedding_layers"));
  int64_t width = hidden;
  for (const auto& layer : layers) {
    auto& spec = specs.emplace_back();
    spec.prefix = fmt::format("embedding_layers.{}", specs.size() - 1);
    CHORAL_TRY(spec.in, layer.get_int("in_features", kDimension));
    CHORAL_TRY(spec.out, layer.get_int("out_features", kDimension));
    CHORAL_TRY(spec.bias, layer.get_bool_or("bias", false));
    CHORAL_TRY(spec.is_tanh, layer.get_bool_or("is_tanh", false));
    if (spec.in != width) return corrupt("{} is {}, behind {} numbers", layer.path_of("in_features"), spec.in, width);
    width = spec.out;
  }
  return specs;
}

Result<DecoderSpec> read_decoder_spec(const io::ConfigMap& config, const ModelOptions& options) {
  DecoderSpec spec;
  CHORAL_TRY(spec.sees_later, read_sees_later(config, options));
  CHORAL_TRY(spec.hidden, config.get_int("hidden_size", kDimension));
  CHORAL_TRY(spec.intermediate, config.get_int("intermediate_size", kDimension));
  CHORAL_TRY(spec.layers, config.get_int("num_hidden_layers", kLayers));
  CHORAL_TRY(spec.heads, config.get_int("num_attention_heads", kDimension));
  CHORAL_TRY(spec.kv_heads, config.get_int_or("num_key_value_heads", spec.heads, kDimension));
  CHORAL_TRY(spec.vocab, config.get_int("vocab_size", kDimension));
  CHORAL_TRY(const int64_t positions, config.get_int("max_position_embeddings", kDimension));
  if (spec.heads % spec.kv_heads != 0) {
    return corrupt("{} ({}) is no multiple of num_key_value_heads ({})", config.path_of("num_attention_heads"), spec.heads,
                   spec.kv_heads);
  }
  const bool of_latents = config.contains("kv_lora_rank");  // whose heads have sizes of their own
  if (!config.contains("head_dim") && !of_latents && spec.hidden % spec.heads != 0) {
    return corrupt("{} ({}) is no multiple of num_attention_heads ({}) and there is no head_dim", config.path_of("hidden_size"),
                   spec.hidden, spec.heads);
  }
  CHORAL_TRY(spec.head_dim, config.get_int_or("head_dim", spec.hidden / spec.heads, kDimension));
  CHORAL_TRY(const double eps, config.get_double_or("rms_norm_eps", 1e-6, kEpsilon));
  spec.rms_norm_eps = static_cast<float>(eps);
  CHORAL_TRY(spec.hidden_act, config.get_string_or("hidden_act", "silu"));
  CHORAL_TRY(spec.tie_word_embeddings, config.get_bool_or("tie_word_embeddings", false));
  spec.max_positions = options.max_model_len > 0 ? std::min(options.max_model_len, positions) : positions;
  spec.sliding_window.assign(spec.layers, 0);
  CHORAL_TRY(spec.embedding_layers, read_embedding_layers(config, spec.hidden));
  CHORAL_TRY(spec.rotary, read_rope_config(config, spec.head_dim, spec.max_positions, positions));
  return spec;
}

Result<kernels::RotaryParams> read_window_rotary(const io::ConfigMap& config, const kernels::RotaryParams& other) {
  kernels::RotaryParams rotary{.head_dim = other.head_dim, .rotary_dim = other.rotary_dim, .max_positions = other.max_positions};
  CHORAL_TRY(rotary.theta, config.get_double_or("rope_local_base_freq", rotary.theta));
  return rotary;
}

Result<std::vector<int64_t>> read_layer_windows(const io::ConfigMap& config, int64_t layers, int64_t window) {
  CHORAL_TRY(const auto types, config.get_strings("layer_types"));
  if (std::ssize(types) != layers) {
    return corrupt("{} has {} entries for {} layers", config.path_of("layer_types"), types.size(), layers);
  }
  std::vector<int64_t> windows;
  for (const auto& type : types) {
    if (type != "sliding_attention" && type != "full_attention") {
      return unsupported("{}: '{}' is not known here; known: full_attention, sliding_attention", config.path_of("layer_types"),
                         printable(type));
    }
    if (type == "sliding_attention" && window == 0) {
      return corrupt("{}: a layer has a window, but {} says none", config.path_of("layer_types"),
                     config.path_of("sliding_window"));
    }
    windows.push_back(type == "sliding_attention" ? window : 0);
  }
  return windows;
}

Result<std::vector<bool>> read_state_layers(const io::ConfigMap& config, int64_t layers) {
  CHORAL_TRY(const auto types, config.get_strings("layer_types"));
  if (std::ssize(types) != layers) {
    return corrupt("{} has {} entries for {} layers", config.path_of("layer_types"), types.size(), layers);
  }
  std::vector<bool> keeps(layers);
  for (int64_t i = 0; i < layers; ++i) {
    keeps[i] = types[i] == "linear_attention";
    if (!keeps[i] && types[i] != "full_attention") {
      return unsupported("{}: '{}' is not known here; known: full_attention, linear_attention", config.path_of("layer_types"),
                         printable(types[i]));
    }
  }
  if (std::find(keeps.begin(), keeps.end(), false) == keeps.end()) {
    return unsupported("{}: no layer has full_attention; a model without any keys is not served here",
                       config.path_of("layer_types"));
  }
  return keeps;
}

Result<std::vector<int64_t>> read_alternating_windows(const io::ConfigMap& config, int64_t layers, int64_t pattern,
                                                      int64_t absent) {
  const bool is_null = config.object().find("sliding_window") != nullptr && !config.contains("sliding_window");
  CHORAL_TRY(const int64_t window, config.get_int_or("sliding_window", is_null ? 0 : absent, io::kPositive));
  if (config.contains("layer_types")) return read_layer_windows(config, layers, window);
  if (is_null) return corrupt("{} is null, and there are no layer_types", config.path_of("sliding_window"));
  std::vector<int64_t> windows(layers, window);
  for (int64_t i = pattern - 1; i < layers; i += pattern) windows[i] = 0;
  return windows;
}

Result<MoeSpec> read_moe_spec(const io::ConfigMap& config, int64_t layers) {
  MoeSpec moe;
  CHORAL_TRY(moe.experts, config.get_int("num_experts", kExperts));
  if (moe.experts * layers > kExpertsOfModel) {
    return too_large("{} is {}, in {} layers; a model may have {} experts in all", config.path_of("num_experts"), moe.experts,
                     layers, kExpertsOfModel);
  }
  CHORAL_TRY(moe.gating.top_k, config.get_int("num_experts_per_tok", kExperts));
  if (moe.gating.top_k > moe.experts) {
    return corrupt("{} is {}, of {} experts", config.path_of("num_experts_per_tok"), moe.gating.top_k, moe.experts);
  }
  return moe;
}

Result<std::vector<bool>> read_sparse_layers(const io::ConfigMap& config, int64_t layers) {
  CHORAL_TRY(const int64_t step, config.get_int_or("decoder_sparse_step", 1, io::kPositive));
  std::vector<bool> sparse(layers);
  for (int64_t i = 0; i < layers; ++i) sparse[i] = (i + 1) % step == 0;
  if (!config.contains("mlp_only_layers")) return sparse;
  CHORAL_TRY(const auto dense, config.get_ints("mlp_only_layers"));
  for (const int64_t i : dense) {
    if (i >= 0 && i < layers) sparse[i] = false;
  }
  return sparse;
}

Result<int64_t> read_qwen_window(const io::ConfigMap& config) {
  CHORAL_TRY(const bool used, config.get_bool_or("use_sliding_window", false));
  if (!used) return 0;
  const bool said = config.object().find("sliding_window") != nullptr;
  return config.get_int_or("sliding_window", said ? 0 : 4096, io::kNotNegative);
}

Result<std::vector<int64_t>> read_qwen_windows(const io::ConfigMap& config, int64_t layers) {
  std::vector<int64_t> windows(layers, 0);
  CHORAL_TRY(const int64_t window, read_qwen_window(config));
  if (window == 0) return windows;
  if (config.contains("layer_types")) return read_layer_windows(config, layers, window);
  CHORAL_TRY(const int64_t first, config.get_int_or("max_window_layers", 28, io::kNotNegative));
  for (int64_t i = first; i < layers; ++i) windows[i] = window;
  return windows;
}

}  // namespace choral::models
