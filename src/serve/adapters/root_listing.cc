#include "serve/adapters/root_listing.h"

#include <set>

#include "base/log.h"
#include "base/printable.h"
#include "lora/peft/adapter_name.h"
#include "lora/peft/peft_helper.h"

namespace choral::serve {

std::vector<lora::FoundAdapter> RootListing::adapters() const {
  std::vector<lora::FoundAdapter> out;
  for (const auto& [name, folder] : folders_) {
    if (folder.listed) out.push_back({name, folder.path});
  }
  return out;
}

RootListing::Faults RootListing::faults() const {
  Faults out;
  for (const auto& [name, folder] : folders_) {
    if (!folder.fault.ok()) out.emplace(name, folder.fault);
  }
  return out;
}

bool RootListing::take(const std::vector<lora::FoundAdapter>& found, double now, double quiet_s, std::vector<RootChange>& changes,
                       bool placed) {
  std::set<std::string> here;
  for (const auto& one : found) {
    look(one, now);
    here.insert(one.name);
  }
  bool unsettled = false;
  for (auto it = folders_.begin(); it != folders_.end();) {
    auto& [name, folder] = *it;
    if (!here.contains(name) && !folder.missing) {
      folder.missing = true;
      folder.since_s = now;
      folder.judged = false;
    }
    const bool settled = now - folder.since_s >= quiet_s;
    if (settled && folder.missing) {
      if (folder.listed) changes.push_back({RootChange::Kind::kVanished, name, folder.path});
      it = folders_.erase(it);
      continue;
    }
    if (settled && !folder.judged) judge(name, folder, placed, changes);
    unsettled |= !settled;
    ++it;
  }
  return unsettled;
}

void RootListing::look(const lora::FoundAdapter& found, double now) {
  auto facts = engine::look_at_adapter(found.path);
  const auto [it, fresh] = folders_.try_emplace(found.name);
  Folder& folder = it->second;
  if (!fresh && !folder.missing && folder.facts == facts) return;
  folder.path = found.path;
  folder.facts = std::move(facts);
  folder.since_s = now;
  folder.judged = false;
  folder.missing = false;
}

// A folder that was listed and cannot be read now stays listed: what it held may still be served.
void RootListing::judge(const std::string& name, Folder& folder, bool placed, std::vector<RootChange>& changes) {
  folder.fault = lora::check_adapter_name(name);
  if (folder.fault.ok() && !placed) {
    const auto place = lora::adapter_in_root(root_, name);
    folder.fault = place.ok() ? Status() : place.status();
  }
  if (folder.fault.ok()) folder.fault = lora::PEFTHelper::from_local_dir(folder.path).status();
  folder.judged = folder.fault.code() != Code::kResourceExhausted;  // too many open files, say: the next scan looks again
  if (!folder.fault.ok()) {
    CHORAL_LOG(kWarn, "'{}' in the adapter root cannot be used: {}", printable(name), folder.fault.message());
    return;
  }
  if (!folder.listed || folder.told != folder.facts)  // else it was away and is back
    changes.push_back({folder.listed ? RootChange::Kind::kChanged : RootChange::Kind::kAppeared, name, folder.path});
  folder.listed = true;
  folder.told = folder.facts;
}

}  // namespace choral::serve
