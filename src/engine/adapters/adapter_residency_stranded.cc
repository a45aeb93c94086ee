// What becomes of requests whose version of an adapter cannot be read (again); see adapter_registry.h for the rule.
#include <algorithm>

#include "engine/adapters/adapter_residency.h"

namespace choral::engine {

// A version that cannot be read is left for another: by files that were refused for what their name stood for before, while that
// is in memory; by one whose files are gone for what the name stands for now.
Status AdapterResidency::choose_version(VersionUse& use) {
  const AdapterVersion& version = *use.version;
  if (!use.failed() || in_memory(version)) return {};
  auto other = version.older != nullptr && in_memory(*version.older) ? version.older : registry_.present(version);
  if (other == nullptr || other == use.version || (!other->failure.ok() && !in_memory(*other))) return version.failure;
  if (other == version.older && !in_memory(*other)) return version.failure;  // its files are the refused ones
  use.failures_before = other->failures;
  use.version = std::move(other);
  return {};
}

bool AdapterResidency::is_stranded(const EngineRequest& request) const {
  if (request.voice == nullptr || request.holds_adapter) return false;
  return std::any_of(request.adapters.begin(), request.adapters.end(), [this](const VersionUse& use) {
    const auto& content = use.version->content;
    return use.failed() && content != nullptr && !memory_.resident(content->id) && !memory_.loading(content->id);
  });
}

void AdapterResidency::start_over(EngineRequest& request) {
  leave(request);
  request.adapter_key = lora::kBaseKey;
  request.adapter_ids.clear();
  request.activation_token = 0;
  request.activated_root.reset();
  request.prefix_root = cache::make_prefix_root({}, request.cache_salt);
}

}  // namespace choral::engine
