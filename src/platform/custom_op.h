// A CustomOp is an operation of a layer that a device may run in its own way: one public name, several forms, bound once.
// Forms: native (the plain loops that say what it means), cpu (the table's operator), cuda and oot (the device's own form of this
// CustomOp where it brings one, or else its table's operator; cuda is what a device of that name is called).
// CustomOpConfig says per name whether the fast form is wanted: "all", "none", "+rms_norm", "-rms_norm".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "platform/name_switches.h"
#include "platform/ops/cpu_ops.h"
#include "platform/platform.h"

namespace choral::platform {

enum class OpForm { kNative, kCpu, kCuda, kOot };
std::string_view op_form_name(OpForm form);

class CustomOpConfig {
 public:
  CustomOpConfig() = default;  // "all"
  // A list as name_switches.h has it; a name that no op declares is an error naming the nearest.
  static Result<CustomOpConfig> parse(std::string_view comma_separated);
  bool enabled(std::string_view name) const;

  // A platform's patch: `name` takes this form whatever the list says.
  Status force(std::string_view name, std::string_view form);
  std::optional<OpForm> forced(std::string_view name) const;

 private:
  NameSwitches switches_;
  std::vector<std::pair<std::string, OpForm>> forced_;
};

// The public names that layers declare; sorted.
const std::vector<std::string>& custom_op_names();
// Fine, or the error of an override of a name that no layer declares, which would never be used.
Status check_custom_op_name(std::string_view name);

class CustomOp {
 public:
  std::string_view op_name() const { return name_; }
  OpForm form() const { return form_; }

 protected:
  // `name` is one of custom_op_names(). Binds the form once.
  CustomOp(std::string_view name, const CustomOpConfig& config, const Session& session);
  ~CustomOp() = default;

  // The operator D in this form, for the life of the session.
  template <class D>
  const OpOf<D>& bind() const {
    if (form_ == OpForm::kNative) return (host_reads(session_) ? native_ops() : staged_native_ops()).get<D>();
    const auto& own = session_.custom_ops().get<D>();
    return form_ != OpForm::kCpu && own.run != nullptr ? own : session_.ops().get<D>();
  }
  // Whether a fused operator of provider `provider` does the same as this form of D.
  template <class D>
  bool agrees_with(std::string_view provider) const {
    const auto& own = bind<D>();
    return &own == &session_.ops().get<D>() || own.provider == provider;
  }

 private:
  std::string_view name_;
  const Session& session_;
  OpForm form_;
};

}  // namespace choral::platform
