#include "platform/name_switches.h"

#include <algorithm>

namespace choral::platform {

Result<NameSwitches> NameSwitches::parse(std::string_view text, std::string_view option,
                                         Status (*check_name)(std::string_view name)) {
  NameSwitches switches;
  bool all = false, none = false;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    all = all || entry == "all";
    none = none || entry == "none";
    if (entry == "all" || entry == "none") continue;
    if (entry.size() < 2 || (entry.front() != '+' && entry.front() != '-')) {
      return invalid_argument("{}: '{}' is none of all, none, +name, -name", option, entry);
    }
    CHORAL_RETURN_IF_ERROR(check_name(entry.substr(1)).while_(option));
    (entry.front() == '+' ? switches.on_ : switches.off_).emplace_back(entry.substr(1));
  }
  if (all && none) return invalid_argument("{}: 'all' and 'none' exclude each other; keep one of them", option);
  switches.all_ = !none;
  return switches;
}

NameSwitches::Said NameSwitches::about(std::string_view name) const {
  const auto holds = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (holds(off_)) return Said::kOff;
  if (holds(on_)) return Said::kOn;
  return all_ ? Said::kAll : Said::kNone;
}

}  // namespace choral::platform
