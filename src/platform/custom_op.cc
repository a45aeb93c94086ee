#include "platform/custom_op.h"

#include <algorithm>

#include "base/nearest_name.h"
#include "platform/platform.h"

namespace choral::platform {
namespace {

bool holds(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// native: switched off; cpu: the built-in device; oot: any other device serves the op through its own table.
OpForm dispatch_forward(std::string_view name, const CustomOpConfig& config, const Platform& platform) {
  if (!config.enabled(name)) return OpForm::kNative;
  return platform.device() == kCpuDevice ? OpForm::kCpu : OpForm::kOot;
}

}  // namespace

std::string_view op_form_name(OpForm form) {
  switch (form) {
    case OpForm::kNative: return "native";
    case OpForm::kCpu: return "cpu";
    case OpForm::kOot: return "oot";
  }
  return "?";
}

const std::vector<std::string>& custom_op_names() {
  static const std::vector<std::string> kNames{"gelu_and_mul", "rms_norm", "rotary_embedding", "silu_and_mul"};
  return kNames;
}

Result<CustomOpConfig> CustomOpConfig::parse(const std::vector<std::string>& entries) {
  CustomOpConfig config;
  if (holds(entries, "all") && holds(entries, "none")) {
    return invalid_argument("custom_ops: 'all' and 'none' exclude each other; keep one of them");
  }
  config.all_ = !holds(entries, "none");
  for (const auto& entry : entries) {
    if (entry == "all" || entry == "none") continue;
    const char sign = entry.empty() ? '\0' : entry.front();
    const std::string name = entry.empty() ? "" : entry.substr(1);
    if (sign != '+' && sign != '-') {
      return invalid_argument("custom_ops: '{}' is none of all, none, +name, -name", entry);
    }
    if (!holds(custom_op_names(), name)) {
      const std::string near = nearest_name(name, custom_op_names());
      return invalid_argument("custom_ops: no operator is named '{}'{}", name,
                              near.empty() ? "" : "; did you mean " + near + "?");
    }
    (sign == '+' ? config.on_ : config.off_).push_back(name);
  }
  return config;
}

bool CustomOpConfig::enabled(std::string_view name) const { return !holds(off_, name) && (all_ || holds(on_, name)); }

CustomOp::CustomOp(std::string_view name, const CustomOpConfig& config, const Platform& platform)
    : name_(name), form_(dispatch_forward(name, config, platform)) {
  CHORAL_CHECK(holds(custom_op_names(), name), "a CustomOp carries a declared name");
}

}  // namespace choral::platform
