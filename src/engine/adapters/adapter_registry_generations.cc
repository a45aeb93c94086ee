// Several contents of a name that can be asked for.
#include <algorithm>

#include "engine/adapters/adapter_registry.h"
#include "lora/peft/adapter_name.h"

namespace choral::engine {

// Of NAME@GENERATION, where there is no name that is spelled so: what stands for the name, or stood for it. Its files are not
// looked at: they hold this content or none.
std::optional<VersionUse> AdapterRegistry::find_generation(std::string_view name) {
  const auto [plain, generation] = lora::split_generation(name);
  if (config_.generations_alive <= 1 || !generation) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(plain);
  if (found == names_.end() || names_.contains(name)) return std::nullopt;
  Name& known = found->second;
  known.last_use = ++clock_;
  const auto is_it = [&](const auto& version) {
    return version->was_read() && version->info->get(&AdapterInfo::generation) == *generation;
  };
  const auto earlier = std::find_if(known.earlier.begin(), known.earlier.end(), is_it);
  if (earlier == known.earlier.end() && !is_it(known.version)) return std::nullopt;
  VersionUse use = use_of(earlier != known.earlier.end() ? *earlier : known.version, false);
  use.is_exact = true;
  return use;
}

void AdapterRegistry::keep_generation(const std::string& name, std::shared_ptr<AdapterVersion> version,
                                      std::string_view digest_now, Versions& gone) {
  Name& known = names_.at(name);
  const bool is_earlier = version->was_read() && version->digest != digest_now;  // else the same files were written anew
  if (is_earlier && config_.generations_alive > 1) known.earlier.push_back(std::move(version));
  while (std::ssize(known.earlier) >= config_.generations_alive) {
    gone.push_back(std::move(known.earlier.front()));
    known.earlier.erase(known.earlier.begin());
  }
}

std::vector<AdapterInfo> AdapterRegistry::list() const {
  auto all = board_.infos();
  if (config_.generations_alive > 1) {
    for (auto& info : all) show_earlier(info);
  }
  return all;
}

void AdapterRegistry::show_earlier(AdapterInfo& info) const {
  Versions earlier;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = names_.find(info.name); found != names_.end()) earlier = found->second.earlier;
  }
  for (const auto& version : earlier) {
    const AdapterInfo one = version->info->get();
    info.earlier.push_back(
        {.generation = one.generation, .digest = one.digest, .path = one.path, .state = one.state, .in_use = one.in_use});
  }
}

}  // namespace choral::engine
