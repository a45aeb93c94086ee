// What GGUF says of the rotary embedding: keys, and tensors of factors.
#include <cmath>
#include <cstring>

#include "base/printable.h"
#include "io/gguf_translation.h"

namespace choral::io {
namespace {

constexpr std::string_view kFactors = "rope_freqs.weight", kLongFactors = "rope_factors_long.weight",
                           kShortFactors = "rope_factors_short.weight";

}  // namespace

Result<ConfigArray> GgufTranslation::factors(std::string_view tensor) const {
  if (!file_.contains(tensor)) return corrupt("{}: {} is missing; its rotary scaling has factors", metadata().source(), tensor);
  CHORAL_TRY(const TensorView stored, file_.find(tensor));
  if (stored.dtype != DType::kF32 || stored.shape.rank() != 1 || stored.cols() > head_dim_) {
    return unsupported("{}: {} is {} of shape {}; float32 and at most {} numbers are supported", metadata().source(), tensor,
                       dtype_name(stored.dtype), stored.shape.to_string(), head_dim_);
  }
  ConfigArray out;
  for (int64_t i = 0; i < stored.cols(); ++i) {
    float factor;
    std::memcpy(&factor, stored.data + i * sizeof(float), sizeof(float));
    if (!std::isfinite(factor) || factor <= 0) return corrupt("{}: {}[{}] is {}", metadata().source(), tensor, i, factor);
    out.push_back(as_written(factor));
  }
  return out;
}

// Phi-3's: one factor of a frequency for texts of the length it was first trained on, another for longer ones.
Result<ConfigValue> GgufTranslation::long_rope() const {
  ConfigObject scaling;
  CHORAL_TRY(ConfigArray longer, factors(kLongFactors));
  CHORAL_TRY(ConfigArray shorter, factors(kShortFactors));
  CHORAL_TRY(const int64_t original, count("rope.scaling.original_context_length"));
  scaling.set("rope_type", "longrope");
  scaling.set("long_factor", std::move(longer));
  scaling.set("short_factor", std::move(shorter));
  scaling.set("original_max_position_embeddings", original);
  CHORAL_RETURN_IF_ERROR(copy_double("rope.scaling.attn_factor", "attention_factor", scaling));
  return ConfigValue(std::move(scaling));
}

Result<ConfigValue> GgufTranslation::yarn() const {
  ConfigObject scaling;
  CHORAL_TRY(const double factor, metadata().get_double(key("rope.scaling.factor")));
  scaling.set("rope_type", "yarn");
  scaling.set("factor", as_written(factor));
  if (has("rope.scaling.original_context_length")) {
    CHORAL_TRY(const int64_t original, count("rope.scaling.original_context_length"));
    scaling.set("original_max_position_embeddings", original);
  }
  CHORAL_RETURN_IF_ERROR(copy_double("rope.scaling.yarn_beta_fast", "beta_fast", scaling));
  CHORAL_RETURN_IF_ERROR(copy_double("rope.scaling.yarn_beta_slow", "beta_slow", scaling));
  CHORAL_RETURN_IF_ERROR(copy_double("rope.scaling.yarn_attn_factor", "attention_factor", scaling));
  CHORAL_RETURN_IF_ERROR(yarn_of_family(scaling));
  return ConfigValue(std::move(scaling));
}

Result<ConfigValue> GgufTranslation::rope_scaling() const {
  constexpr std::string_view kType = "rope.scaling.type";
  CHORAL_TRY(const std::string type, metadata().get_string_or(key(kType), "none"));
  const bool longrope = file_.contains(kLongFactors);
  if ((file_.contains(kFactors) && type != "none") || (longrope && type != "none" && type != "longrope")) {
    return unsupported("{}: {} together with {} '{}'", metadata().source(), longrope ? kLongFactors : kFactors, key(kType),
                       printable(type));
  }
  if (longrope || type == "longrope") return long_rope();
  if (type == "yarn") return yarn();
  ConfigObject scaling;
  if (file_.contains(kFactors)) {
    CHORAL_TRY(ConfigArray divisors, factors(kFactors));
    scaling.set("rope_type", "freq_factors");
    scaling.set("freq_factors", std::move(divisors));
    return ConfigValue(std::move(scaling));
  }
  if (type != "none" && type != "linear") {
    return unsupported("{} is '{}'; linear, yarn and longrope are supported", metadata().path_of(key(kType)), printable(type));
  }
  const std::string_view factor_key = type == "linear" ? "rope.scaling.factor" : "rope.scale_linear";  // an older spelling
  if (type == "none" && !has(factor_key)) return ConfigValue();
  CHORAL_TRY(const double factor, metadata().get_double(key(factor_key)));
  if (type == "none" && factor == 1) return ConfigValue();
  scaling.set("rope_type", "linear");
  scaling.set("factor", as_written(factor));
  return ConfigValue(std::move(scaling));
}

Status GgufTranslation::rope() {
  const std::string_view norm = architecture_.layer_norm ? "layer_norm" : "layer_norm_rms";
  CHORAL_TRY(const double eps, metadata().get_double(key(fmt::format("attention.{}_epsilon", norm)), {0, 1}));
  CHORAL_TRY(const double theta, metadata().get_double_or(key("rope.freq_base"), 10000.0));
  CHORAL_TRY(ConfigValue scaling, rope_scaling());
  CHORAL_TRY(const int64_t window, metadata().get_int_or(key("attention.sliding_window"), 0, kNotNegative));
  out_.set(architecture_.layer_norm ? "layer_norm_eps" : "rms_norm_eps", as_written(eps));
  out_.set("rope_theta", as_written(theta));
  out_.set("rope_scaling", std::move(scaling));
  if (window > 0) out_.set("sliding_window", window);
  if (window == 0 && architecture_.name == "mistral") out_.set("sliding_window", ConfigValue());  // its class has one else
  if (window > 0 && architecture_.name.starts_with("qwen")) out_.set("use_sliding_window", true);
  return {};
}

}  // namespace choral::io
