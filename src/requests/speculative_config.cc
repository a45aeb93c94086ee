#include "requests/speculative_config.h"

#include <algorithm>
#include <array>

#include "base/nearest_name.h"
#include "requests/json.h"

namespace choral::requests {
namespace {

// Members that choose among ways to the same answer.
struct Neutral {
  std::string_view name;
  std::string_view why;
};
constexpr std::string_view kLongest = "the longest match of three tokens or more counts";
constexpr std::array kNeutral{
    Neutral{"prompt_lookup_max", kLongest},
    Neutral{"prompt_lookup_min", kLongest},
    Neutral{"disable_by_batch_size", "before each step guesses are weighed by what the step costs, and a full batch has none"},
};

// Members that say how a draft model is loaded or run.
constexpr std::array<std::string_view, 7> kOfModels{
    "draft_tensor_parallel_size", "quantization",      "max_model_len", "code_revision",
    "draft_load_config",          "attention_backend", "moe_backend"};

Status read_member(const std::string& name, const Json& value, SpeculativeConfig& config) {
  if (name == "method") {
    std::string method;
    CHORAL_RETURN_IF_ERROR(read_value(name, value, method));
    if (method == "ngram" || method == "draft_model") return {};
    return unsupported(
        R"(the method '{}' is not served: tokens are guessed from the text itself and by a draft model; send {{"method": "ngram"}} or {{"model": "MODEL"}})",
        shown(method));
  }
  if (name == "model") {
    std::string model;
    CHORAL_RETURN_IF_ERROR(read_value(name, value, model));
    config.draft_model = draft_model_of(model);
    return {};
  }
  if (name == "num_speculative_tokens") return read_value(name, value, config.most_guessed);
  const auto neutral = std::find_if(kNeutral.begin(), kNeutral.end(), [&](const Neutral& each) { return each.name == name; });
  if (neutral != kNeutral.end()) {
    int32_t number = 0;
    CHORAL_RETURN_IF_ERROR(read_value(name, value, number));
    config.notes.push_back(fmt::format("{} {} changes nothing here ({})", name, number, neutral->why));
    return {};
  }
  if (std::find(kOfModels.begin(), kOfModels.end(), name) != kOfModels.end())
    return unsupported(
        "'{}' is not served; --draft-model MODEL and --draft-quantization NAME say the same as `choral serve` says it", name);
  std::vector<std::string> names{"method", "model", "num_speculative_tokens"};
  for (const auto& each : kNeutral) names.emplace_back(each.name);
  const std::string nearest = nearest_name(name, names);
  return invalid_argument("'{}' is not known{}", shown(name),
                          nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
}

}  // namespace

std::string draft_model_of(std::string_view speculative_model) {
  return std::string(speculative_model == "ngram" || speculative_model == "[ngram]" ? "" : speculative_model);
}

Result<SpeculativeConfig> read_speculative_config(std::string_view json) {
  CHORAL_TRY(const Json parsed, parse_object(json, "the configuration"));
  SpeculativeConfig config;
  for (const auto& [name, value] : parsed.items()) {
    if (!value.is_null()) CHORAL_RETURN_IF_ERROR(read_member(name, value, config));
  }
  const auto method = parsed.find("method");
  if (config.draft_model.empty() && method != parsed.end() && *method == "draft_model")
    return invalid_argument(R"(the method 'draft_model' needs a "model")");
  return config;
}

}  // namespace choral::requests
