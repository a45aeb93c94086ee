// A list that switches names on and off, as --custom-ops and --fuse take it: "all" or "none", then "+name" and "-name", with
// commas. A name's own entry beats all and none, "-" beats "+", and the order of entries says nothing. Without all and none: all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::platform {

class NameSwitches {
 public:
  NameSwitches() = default;  // "all"
  // `option` is whose list this is, for errors; check_name knows the names.
  static Result<NameSwitches> parse(std::string_view text, std::string_view option, Status (*check_name)(std::string_view name));

  enum class Said { kAll, kNone, kOn, kOff };  // the last two: by its own entry
  Said about(std::string_view name) const;

 private:
  bool all_ = true;
  std::vector<std::string> on_, off_;
};

}  // namespace choral::platform
