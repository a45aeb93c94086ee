#include "quant/formats/skipped_modules.h"

namespace choral::quant {

Status SkippedModules::read(const io::ConfigMap& config, std::string_view key) {
  CHORAL_TRY(const auto entries, config.get_strings_or_empty(key));
  for (const std::string& entry : entries) {
    const auto expression = fmt::format("(?:{}){}", entry, R"((?:(?<=\.)|(?=\.|$)))");
    CHORAL_TRY(auto pattern, io::ModulePattern::compile(expression, io::ModulePattern::Mode::kMatch).while_(config.path_of(key)));
    entries_.push_back({entry, std::move(pattern)});
  }
  return {};
}

Result<bool> SkippedModules::match(std::string_view module) const {
  for (const auto& entry : entries_) {
    if (module.ends_with(entry.text)) return true;
    CHORAL_TRY(const bool matches, entry.pattern.matches(module));
    if (matches) return true;
  }
  return false;
}

}  // namespace choral::quant
