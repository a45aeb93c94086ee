#include "models/rope_config.h"

#include <array>
#include <string_view>
#include <utility>

namespace choral::models {
namespace {

using kernels::RotaryParams;
using kernels::RotaryScaling;

constexpr std::array<std::pair<std::string_view, RotaryScaling>, 7> kTypes{{{"default", RotaryScaling::kNone},
                                                                            {"linear", RotaryScaling::kLinear},
                                                                            {"dynamic", RotaryScaling::kDynamic},
                                                                            {"llama3", RotaryScaling::kLlama3},
                                                                            {"yarn", RotaryScaling::kYarn},
                                                                            {"longrope", RotaryScaling::kLongRope},
                                                                            {"freq_factors", RotaryScaling::kNone}}};

Result<RotaryScaling> parse_type(const io::ConfigMap& scaling) {
  CHORAL_TRY(const std::string type, scaling.get_string_or("rope_type", "default"));
  for (const auto& [name, value] : kTypes) {
    if (name == type) return value;
  }
  return unsupported("{} is '{}'; known: default, linear, dynamic, llama3, yarn, longrope", scaling.path_of("rope_type"), type);
}

Result<std::vector<float>> read_factors(const io::ConfigMap& scaling, std::string_view key) {
  std::vector<float> factors;
  if (!scaling.contains(key)) return factors;
  CHORAL_TRY(const auto values, scaling.get_doubles(key));
  factors.assign(values.begin(), values.end());
  return factors;
}

Status read_optional(const io::ConfigMap& scaling, std::string_view key, std::optional<double>& out) {
  if (!scaling.contains(key)) return {};
  CHORAL_TRY(out, scaling.get_double(key));
  return {};
}

Status read_scaling(const io::ConfigMap& scaling, int64_t config_positions, RotaryParams& params) {
  CHORAL_TRY(params.scaling, parse_type(scaling));
  CHORAL_TRY(params.original_max_position,
             scaling.get_int_or("original_max_position_embeddings", config_positions, io::kPositive));
  if (params.scaling == RotaryScaling::kLongRope) {
    const double stretched = static_cast<double>(config_positions) / static_cast<double>(params.original_max_position);
    CHORAL_TRY(params.factor, scaling.get_double_or("factor", stretched));
  } else if (params.scaling != RotaryScaling::kNone) {
    CHORAL_TRY(params.factor, scaling.get_double("factor"));
  } else {
    CHORAL_TRY(params.factor, scaling.get_double_or("factor", 1.0));
  }
  CHORAL_TRY(params.low_freq_factor, scaling.get_double_or("low_freq_factor", params.low_freq_factor));
  CHORAL_TRY(params.high_freq_factor, scaling.get_double_or("high_freq_factor", params.high_freq_factor));
  CHORAL_TRY(params.beta_fast, scaling.get_double_or("beta_fast", params.beta_fast));
  CHORAL_TRY(params.beta_slow, scaling.get_double_or("beta_slow", params.beta_slow));
  CHORAL_TRY(params.truncate, scaling.get_bool_or("truncate", params.truncate));
  CHORAL_RETURN_IF_ERROR(read_optional(scaling, "mscale", params.mscale));
  CHORAL_RETURN_IF_ERROR(read_optional(scaling, "mscale_all_dim", params.mscale_all_dim));
  CHORAL_RETURN_IF_ERROR(read_optional(scaling, "attention_factor", params.attention_factor));
  CHORAL_TRY(params.short_factors, read_factors(scaling, "short_factor"));
  CHORAL_TRY(params.long_factors, read_factors(scaling, "long_factor"));
  CHORAL_TRY(params.frequency_divisors, read_factors(scaling, "freq_factors"));
  return {};
}

}  // namespace

Result<RotaryParams> read_rope_config(const io::ConfigMap& config, int64_t head_dim, int64_t max_positions,
                                      int64_t config_positions) {
  RotaryParams params{.head_dim = head_dim, .max_positions = max_positions};
  CHORAL_TRY(params.theta, config.get_double_or("rope_theta", params.theta));
  CHORAL_TRY(const double partial, config.get_double_or("partial_rotary_factor", 1.0));
  if (!(partial > 0.0 && partial <= 1.0)) {
    return corrupt("{} is {}; it must lie in (0, 1]", config.path_of("partial_rotary_factor"), partial);
  }
  params.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * partial);
  CHORAL_TRY(params.interleaved, config.get_bool_or("rope_interleaved", false));
  CHORAL_TRY(const auto scaling, config.get_map_or_empty("rope_scaling"));
  if (!scaling.empty()) CHORAL_RETURN_IF_ERROR(read_scaling(scaling, config_positions, params));
  return params;
}

}  // namespace choral::models
