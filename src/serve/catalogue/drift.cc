#include "serve/catalogue/drift.h"

#include <utility>

#include "base/log.h"
#include "base/printable.h"

namespace choral::serve {

bool has_drifted(const AdapterInfo& adapter, const FollowedCatalogue::View& catalogue) {
  const auto place = catalogue.places.find(adapter.name);
  if (place == catalogue.places.end() || adapter.digest.empty() || place->second.digest.empty()) return false;
  if (adapter.is_found && adapter.path != place->second.folder) return false;
  return adapter.digest != place->second.digest;
}

void DriftLog::look(std::span<const AdapterInfo> adapters, const FollowedCatalogue::View& catalogue) {
  const std::lock_guard lock(mutex_);
  std::set<std::string> now;
  for (const auto& adapter : adapters) {
    if (!has_drifted(adapter, catalogue)) continue;
    now.insert(adapter.name);
    if (drifted_.contains(adapter.name)) continue;
    CHORAL_LOG(kWarn, "adapter '{}' has drifted: its digest is {}, and the catalogue says {}", printable(adapter.name),
               adapter.digest, catalogue.places.at(adapter.name).digest);
  }
  for (const auto& name : drifted_) {
    if (!now.contains(name)) CHORAL_LOG(kInfo, "adapter '{}' is what the catalogue says again", printable(name));
  }
  drifted_ = std::move(now);
}

}  // namespace choral::serve
