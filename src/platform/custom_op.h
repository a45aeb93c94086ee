// A CustomOp is an operation of a layer that a device may run in its own way: one public name, several forms, bound once.
// Forms: native (the plain composition every device can run), cpu (this build's kernels), oot (brought by a plug-in).
// CustomOpConfig says per name whether the fast form is wanted: "all", "none", "+rms_norm", "-rms_norm".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "platform/platform.h"

namespace choral::platform {

enum class OpForm { kNative, kCpu, kOot };
std::string_view op_form_name(OpForm form);

class CustomOpConfig {
 public:
  CustomOpConfig() = default;  // "all"
  // Entries as above; exactly one of all/none; a name that no op declares is an error naming the nearest.
  static Result<CustomOpConfig> parse(const std::vector<std::string>& entries);
  bool enabled(std::string_view name) const;

 private:
  bool all_ = true;
  std::vector<std::string> on_;
  std::vector<std::string> off_;
};

// The public names that layers declare; sorted.
const std::vector<std::string>& custom_op_names();

class CustomOp {
 public:
  std::string_view op_name() const { return name_; }
  OpForm form() const { return form_; }

 protected:
  // `name` is one of custom_op_names(). Binds the form once.
  CustomOp(std::string_view name, const CustomOpConfig& config, const Platform& platform);
  ~CustomOp() = default;

 private:
  std::string_view name_;
  OpForm form_;
};

}  // namespace choral::platform
