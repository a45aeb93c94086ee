// The service's adapters: where they come from, and lists of them.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/log.h"
#include "serve/service/service.h"

namespace choral::serve {

// What a server that was killed had taken in and not registered yet.
Status Service::drop_lost_uploads() {
  CHORAL_TRY(const auto registered, registered_->all());
  std::vector<std::string> kept;
  for (const auto& adapter : registered) kept.push_back(adapter.path);
  return uploads_->keep_only(kept);
}

Status Service::open_catalogue() {
  const bool has_index = !options_.catalogue_index.url.empty(), has_root = !options_.adapter_root.empty();
  if (options_.writes_catalogue && !has_root)
    return invalid_argument("--catalogue-writable needs --adapter-root, the folder that the catalogue is in");
  if (has_index && has_root)
    return invalid_argument("--adapter-catalogue and --adapter-root both say which adapters there are; give one of them");
  if (has_index && options_.state_directory.empty())
    return invalid_argument("--adapter-catalogue needs --state-dir, the folder that adapters are fetched into");
  if (has_index) {
    CHORAL_TRY(catalogue_, CatalogueIndex::open(options_.state_directory, options_.catalogue_index));
    return {};
  }
  if (!has_root || !options_.follows_catalogue) return {};
  auto folder = std::make_unique<CatalogueFolder>(options_.adapter_root);
  if (options_.writes_catalogue) written_catalogue_ = folder.get();
  catalogue_ = std::move(folder);
  return catalogue_->look();
}

FollowedCatalogue::State Service::catalogue_state() const {
  return catalogue_ == nullptr ? FollowedCatalogue::State() : catalogue_->state();
}

std::optional<CatalogueFigures> Service::catalogue_figures(std::span<const AdapterInfo> adapters) const {
  const auto view = catalogue();
  if (view == nullptr) return std::nullopt;
  const auto state = catalogue_->state();
  const auto drifted = std::ranges::count_if(adapters, [&](const AdapterInfo& adapter) { return has_drifted(adapter, *view); });
  return CatalogueFigures{.adapters = std::ssize(view->places) + std::ssize(view->faults),
                          .drifted = drifted,
                          .read_unix_s = state.read_unix_s,
                          .failures = state.failures};
}

// What the fleet's catalogue names is no longer a matter of this server.
void Service::reload_registered(LLM& llm) {
  const auto all = registered_->all();
  if (!all.ok()) {
    CHORAL_LOG(kError, "registered adapters cannot be read: {}", all.status().message());
    return;
  }
  const auto view = catalogue();
  for (const auto& adapter : *all) {
    if (view != nullptr && view->places.contains(adapter.name)) {
      const Status gone = registered_->remove(adapter.name);
      CHORAL_LOG(kWarn, "adapter '{}' was registered here, and is now what the catalogue says{}", adapter.name,
                 gone.ok() ? "" : ": " + gone.message());
      continue;
    }
    const Status loaded = llm.load_adapter({.name = adapter.name, .path = adapter.path, .pinned = adapter.pinned}, true);
    if (!loaded.ok()) CHORAL_LOG(kError, "registered adapter '{}' is not served: {}", adapter.name, loaded.message());
  }
}

// The engine finds folders by itself when they are named, and reads changed files anew; what it keeps is a name without a folder.
Status Service::watch_root(LLM& llm) {
  CHORAL_TRY(watcher_, RootWatcher::start(
                           {.root = options_.adapter_root, .catalogue = catalogue_.get()},
                           [this, &llm](const RootChange& change) { take_root_change(llm, change); },
                           [this, &llm] {
                             if (const auto view = catalogue()) drift_log_.look(llm.adapters(), *view);
                           }));
  if (const std::string note = watcher_->note(); !note.empty()) CHORAL_LOG(kWarn, "--adapter-root: {}", note);
  const auto faults = watcher_->faults();
  for (const auto& [name, why] : *faults) CHORAL_LOG(kWarn, "adapter '{}' cannot be used: {}", name, why.message());
  return {};
}

void Service::take_root_change(LLM& llm, const RootChange& change) {
  if (change.kind == RootChange::Kind::kVanished) {
    const auto gone = changes_->forget_folder(change.name, change.path);
    if (!gone.ok()) CHORAL_LOG(kWarn, "adapter '{}' has vanished and stays: {}", change.name, gone.status().message());
    if (gone.ok() && *gone) drop_base_adapter(change.name);
    return;
  }
  // What the fleet changed is read before somebody has to wait for it, where somebody has used it.
  const auto known = catalogue() != nullptr ? llm.adapter(change.name) : std::nullopt;
  if (!known || known->generation == 0) return;
  if (const auto looked = llm.vocabulary({{.name = change.name}}); !looked.ok())
    CHORAL_LOG(kWarn, "adapter '{}' changed: {}", change.name, looked.status().message());
}

std::vector<AdapterInfo> Service::all_adapters() const {
  std::map<std::string, AdapterInfo> all;
  if (watcher_) {
    const auto adapters = watcher_->adapters();
    const auto faults = watcher_->faults();
    for (const auto& [name, path] : *adapters) {
      AdapterInfo& info = all[name];
      info.name = name;
      info.path = path;
    }
    for (const auto& [name, why] : *faults) {
      AdapterInfo& info = all[name];
      info.name = name;
      info.state = AdapterState::kFailed;
      info.error = why.to_string();
    }
  }
  for (auto& adapter : llm()->adapters()) all[adapter.name] = std::move(adapter);
  std::vector<std::string> names;
  for (const auto& [name, adapter] : all) names.push_back(name);
  numbers_->add(names);
  std::vector<AdapterInfo> sorted;
  for (auto& [name, adapter] : all) {
    adapter.id = numbers_->number_of(name).value_or(-1);
    sorted.push_back(std::move(adapter));
  }
  return sorted;
}

std::shared_ptr<const std::vector<std::string>> Service::adapter_names() const {
  const AdapterNames by_engine = llm()->adapter_names();
  const RootWatcher::Adapters by_root = watcher_ ? watcher_->adapters() : nullptr;
  const std::lock_guard lock(lists_mutex_);
  if (names_ != nullptr && named_by_engine_ == by_engine && named_by_root_ == by_root) return names_;
  auto names = std::make_shared<std::vector<std::string>>();
  for (const auto& adapter : *by_engine) names->push_back(adapter->name);
  if (by_root != nullptr) {
    for (const auto& found : *by_root) names->push_back(found.name);
  }
  std::sort(names->begin(), names->end());
  names->erase(std::unique(names->begin(), names->end()), names->end());
  named_by_engine_ = by_engine;
  named_by_root_ = by_root;
  names_ = std::move(names);
  return names_;
}

std::shared_ptr<const std::string> Service::written_for_names(WriteNames write) const {
  const auto names = adapter_names();
  const std::lock_guard lock(lists_mutex_);
  if (written_names_ != names) written_ = std::make_shared<const std::string>(write(*names));
  written_names_ = names;
  return written_;
}

Result<std::string> Service::adapter_path(const std::string& given) const {
  if (options_.adapter_root.empty()) return given;
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path root = fs::canonical(options_.adapter_root, error);
  const fs::path place = error ? fs::path() : fs::canonical(root / given, error);
  if (error) return not_found("'lora_path': there is no {} in the adapters' folder", given);
  if (place == root || std::mismatch(root.begin(), root.end(), place.begin(), place.end()).first != root.end())
    return permission_denied("'lora_path' leads out of the adapters' folder, to which this server is bound by --adapter-root");
  return place.string();
}

}  // namespace choral::serve
