#include "engine/stated_sampling.h"

#include "engine/sampling_check.h"

namespace choral::engine {

Result<StatedSampling> StatedSampling::read(const io::ConfigMap& config) {
  StatedSampling out;
  const auto number = [&](std::string_view key, io::DoubleRange range, std::optional<double>& value) -> Status {
    if (!config.contains(key)) return {};
    CHORAL_TRY(value, config.get_double(key, range));
    return {};
  };
  CHORAL_RETURN_IF_ERROR(number("temperature", {0, kMostTemperature}, out.temperature_));
  CHORAL_RETURN_IF_ERROR(number("top_p", {0, 1}, out.top_p_));
  CHORAL_RETURN_IF_ERROR(number("min_p", {0, 1}, out.min_p_));
  CHORAL_RETURN_IF_ERROR(
      number("repetition_penalty", {kLeastRepetitionPenalty, kMostRepetitionPenalty}, out.repetition_penalty_));
  if (config.contains("top_k")) {
    CHORAL_TRY(out.top_k_, config.get_int("top_k", {-1, 1 << 30}));
  }
  CHORAL_TRY(const bool samples, config.get_bool_or("do_sample", true));
  if (!samples) out.temperature_ = 0;
  return out;
}

SamplingParams StatedSampling::over(SamplingParams params) const {
  params.temperature = static_cast<float>(temperature_.value_or(params.temperature));
  params.top_p = static_cast<float>(top_p_.value_or(params.top_p));
  params.min_p = static_cast<float>(min_p_.value_or(params.min_p));
  params.repetition_penalty = static_cast<float>(repetition_penalty_.value_or(params.repetition_penalty));
  params.top_k = static_cast<int>(top_k_.value_or(params.top_k));
  return params;
}

}  // namespace choral::engine
