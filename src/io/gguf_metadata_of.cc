// The configuration in Hugging Face words -> GGUF metadata: model_config_gguf.cc backwards.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "io/gguf_names.h"
#include "io/model_config.h"

namespace choral::io {
namespace {

// A choice that GGUF's readers take for granted.
Status check_usual(const ConfigMap& config) {
  CHORAL_TRY(const auto activation, config.get_string_or("hidden_act", "silu"));
  if (activation != "silu") {
    return unsupported("{} is '{}'; GGUF files of this family are read as silu", config.path_of("hidden_act"), activation);
  }
  CHORAL_TRY(const double partial, config.get_double_or("partial_rotary_factor", 1.0));
  if (partial != 1.0)
    return unsupported("{} is {}; GGUF files of it are not written", config.path_of("partial_rotary_factor"), partial);
  CHORAL_TRY(const int64_t window, config.get_int_or("sliding_window", 0, kNotNegative));
  CHORAL_TRY(const bool used, config.get_bool_or("use_sliding_window", true));
  if (window > 0 && used) {
    return unsupported("{} is {}; GGUF's llama and qwen look back over the whole text, so answers to long ones would differ",
                       config.path_of("sliding_window"), window);
  }
  return {};
}

constexpr std::string_view kWritten[] = {"GraniteForCausalLM", "LlamaForCausalLM", "MistralForCausalLM",
                                         "Qwen2ForCausalLM",   "Qwen3ForCausalLM", "SmolLM3ForCausalLM"};

class Writer {
 public:
  Writer(const ConfigMap& config, const GgufArchitecture& architecture) : config_(config), prefix_(architecture.name) {}

  Result<GgufMetadata> run() {
    out_.set_string("general.architecture", prefix_);
    CHORAL_RETURN_IF_ERROR(check_usual(config_));
    for (const auto& size : kGgufSizes) {
      CHORAL_TRY(const int64_t value, config_.get_int(size.hf, kPositive));
      set(size.gguf, value);
    }
    CHORAL_RETURN_IF_ERROR(heads());
    CHORAL_TRY(const int64_t vocabulary, config_.get_int("vocab_size", kPositive));
    set("vocab_size", vocabulary);
    CHORAL_TRY(const double eps, config_.get_double("rms_norm_eps", {0, 1}));
    CHORAL_TRY(const double theta, config_.get_double_or("rope_theta", 10000.0));
    set("attention.layer_norm_rms_epsilon", eps);
    set("rope.freq_base", theta);
    CHORAL_RETURN_IF_ERROR(rope_scaling());
    if (prefix_ == "granite") CHORAL_RETURN_IF_ERROR(granite());
    if (prefix_ == "smollm3") CHORAL_RETURN_IF_ERROR(smollm3());
    return std::move(out_);
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }
  void set(std::string_view name, int64_t value) { out_.set_u32(key(name), static_cast<uint32_t>(value)); }
  void set(std::string_view name, double value) { out_.set_f32(key(name), static_cast<float>(value)); }

  Status heads() {
    CHORAL_TRY(const int64_t hidden, config_.get_int("hidden_size", kPositive));
    CHORAL_TRY(const int64_t heads, config_.get_int("num_attention_heads", kPositive));
    CHORAL_TRY(const int64_t kv_heads, config_.get_int_or("num_key_value_heads", heads, kPositive));
    CHORAL_TRY(const int64_t head_dim, config_.get_int_or("head_dim", hidden / heads, kPositive));
    set("attention.head_count", heads);
    set("attention.head_count_kv", kv_heads);
    set("attention.key_length", head_dim);
    set("attention.value_length", head_dim);
    set("rope.dimension_count", head_dim);
    return {};
  }

  Status rope_scaling() {
    CHORAL_TRY(const auto scaling, config_.get_map_or_empty("rope_scaling"));
    CHORAL_TRY(const auto type, scaling.get_string_or("rope_type", "default"));
    if (type == "default" || type == "llama3") return {};
    if (type != "linear" && type != "yarn") {
      return unsupported("{} is '{}'; GGUF files are written of linear, yarn and llama3", scaling.path_of("rope_type"), type);
    }
    for (const char* name : {"attention_factor", "mscale", "mscale_all_dim", "truncate"}) {
      if (scaling.contains(name)) return unsupported("{}: GGUF has no word for it", scaling.path_of(name));
    }
    CHORAL_TRY(const double factor, scaling.get_double("factor"));
    out_.set_string(key("rope.scaling.type"), type);
    set("rope.scaling.factor", factor);
    if (type == "linear") return {};
    if (scaling.contains("original_max_position_embeddings")) {
      CHORAL_TRY(const int64_t original, scaling.get_int("original_max_position_embeddings", kPositive));
      set("rope.scaling.original_context_length", original);
    }
    for (const char* name : {"beta_fast", "beta_slow"}) {
      if (!scaling.contains(name)) continue;
      CHORAL_TRY(const double value, scaling.get_double(name));
      set(fmt::format("rope.scaling.yarn_{}", name), value);
    }
    return {};
  }

  Status granite() {
    for (const auto& [gguf, hf] :
         {std::pair("attention.scale", "attention_multiplier"), std::pair("embedding_scale", "embedding_multiplier"),
          std::pair("residual_scale", "residual_multiplier"), std::pair("logit_scale", "logits_scaling")}) {
      CHORAL_TRY(const double value, config_.get_double_or(hf, 1.0));
      set(gguf, value);
    }
    return {};
  }

  // Every reader of these files leaves every fourth layer unturned.
  Status smollm3() const {
    CHORAL_TRY(const int64_t interval, config_.get_int_or("no_rope_layer_interval", 4));
    CHORAL_TRY(const auto rotates, config_.get_ints_or_empty("no_rope_layers"));
    bool usual = !rotates.empty() || interval == 4;
    for (size_t i = 0; i < rotates.size(); ++i) usual = usual && (rotates[i] != 0) == ((i + 1) % 4 != 0);
    if (usual) return {};
    return unsupported("{}: GGUF files of this family are read as if every fourth layer did not turn q and k, and no other",
                       config_.path_of("no_rope_layers"));
  }

  const ConfigMap& config_;
  std::string_view prefix_;
  GgufMetadata out_;
};

}  // namespace

Result<GgufMetadata> gguf_metadata_of(const ConfigMap& config) {
  CHORAL_TRY(const auto classes, config.get_strings("architectures"));
  for (const auto& name : classes) {
    // llama.cpp has no architecture of Mistral's own: its equations are llama's.
    const auto architecture = gguf_architecture_of(name == "MistralForCausalLM" ? "LlamaForCausalLM" : name);
    const bool written = std::find(std::begin(kWritten), std::end(kWritten), name) != std::end(kWritten);
    if (architecture && written) return Writer(config, *architecture).run();
  }
  return unsupported("{}: GGUF files are written of {}", config.path_of("architectures"), fmt::join(kWritten, ", "));
}

Status put_gguf_sampling(const ConfigMap& generation_config, GgufMetadata& out) {
  CHORAL_TRY(const bool samples, generation_config.get_bool_or("do_sample", true));
  for (const auto& name : kGgufSampling) {
    const bool greedy = name.hf == "temperature" && !samples;
    if (!greedy && !generation_config.contains(name.hf)) continue;
    CHORAL_TRY(const double value, generation_config.get_double_or(name.hf, 0));
    if (name.hf == "top_k" && value >= 0) {
      out.set_u32(name.gguf, static_cast<uint32_t>(std::min(value, 1e9)));
    } else if (name.hf != "top_k") {
      out.set_f32(name.gguf, greedy ? 0.0f : static_cast<float>(value));
    }
  }
  return {};
}

}  // namespace choral::io
