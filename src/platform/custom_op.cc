#include "platform/custom_op.h"

#include <algorithm>
#include <array>

#include "base/nearest_name.h"
#include "platform/platform.h"

namespace choral::platform {
namespace {

bool holds(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

OpForm dispatch_forward(std::string_view name, const CustomOpConfig& config, const Platform& platform) {
  if (const auto form = config.forced(name)) return *form;
  if (!config.enabled(name)) return OpForm::kNative;
  if (platform.name() == "cpu") return OpForm::kCpu;
  return platform.name() == "cuda" ? OpForm::kCuda : OpForm::kOot;
}

constexpr std::array kForms{OpForm::kNative, OpForm::kCpu, OpForm::kCuda, OpForm::kOot};

}  // namespace

std::string_view op_form_name(OpForm form) {
  switch (form) {
    case OpForm::kNative: return "native";
    case OpForm::kCpu: return "cpu";
    case OpForm::kCuda: return "cuda";
    case OpForm::kOot: return "oot";
  }
  return "?";
}

const std::vector<std::string>& custom_op_names() {
  static const std::vector<std::string> kNames{"fused_moe",        "gelu_and_mul",      "gemma_rms_norm",
                                               "logits_processor", "rms_norm",          "rotary_embedding",
                                               "silu_and_mul",     "swigluoai_and_mul", "vocab_parallel_embedding"};
  return kNames;
}

Status check_custom_op_name(std::string_view name) {
  if (holds(custom_op_names(), name)) return {};
  const std::string near = nearest_name(name, custom_op_names());
  return invalid_argument("no layer declares a CustomOp '{}', so it would never be used{}", name,
                          near.empty() ? "" : "; did you mean " + near + "?");
}

Result<CustomOpConfig> CustomOpConfig::parse(std::string_view text) {
  CustomOpConfig config;
  CHORAL_TRY(config.switches_, NameSwitches::parse(text, "--custom-ops", check_custom_op_name));
  return config;
}

bool CustomOpConfig::enabled(std::string_view name) const {
  const auto said = switches_.about(name);
  return said == NameSwitches::Said::kAll || said == NameSwitches::Said::kOn;
}

Status CustomOpConfig::force(std::string_view name, std::string_view form) {
  CHORAL_RETURN_IF_ERROR(check_custom_op_name(name));
  for (const OpForm one : kForms) {
    if (op_form_name(one) != form) continue;
    forced_.emplace_back(name, one);
    return {};
  }
  return invalid_argument("CustomOp {} has no form '{}'; forms are native, cpu, cuda, oot", name, form);
}

std::optional<OpForm> CustomOpConfig::forced(std::string_view name) const {
  const auto found = std::find_if(forced_.begin(), forced_.end(), [&](const auto& entry) { return entry.first == name; });
  return found == forced_.end() ? std::nullopt : std::optional(found->second);
}

CustomOp::CustomOp(std::string_view name, const CustomOpConfig& config, const Session& session)
    : name_(name), session_(session), form_(dispatch_forward(name, config, session.platform())) {
  CHORAL_CHECK(holds(custom_op_names(), name), "a CustomOp carries a declared name");
}

}  // namespace choral::platform
