#include "serve/adapters/adapter_changes.h"

#include <algorithm>
#include <ctime>

#include "base/log.h"

namespace choral::serve {

AdapterInfo AdapterChanges::present(const std::string& name) const {
  if (auto adapter = llm_.adapter(name)) return *std::move(adapter);
  AdapterInfo gone;
  gone.name = name;
  return gone;
}

Result<std::string> AdapterChanges::registered_path(std::string_view name) {
  if (registered_ == nullptr) return std::string();
  CHORAL_TRY(const auto found, registered_->find(name));
  return found ? found->path : std::string();
}

std::set<std::string> AdapterChanges::places_of(const std::string& name) const {
  std::set<std::string> places;
  const AdapterInfo known = present(name);
  places.insert(known.path);
  for (const auto& one : known.earlier) places.insert(one.path);
  return places;
}

void AdapterChanges::drop_left(const std::string& name, std::set<std::string> before) {
  for (const auto& place : places_of(name)) before.erase(place);
  for (const auto& place : before) drop_upload(place);
}

void AdapterChanges::drop_upload(const std::string& path) {
  if (uploads_ == nullptr || !uploads_->has(path)) return;
  const auto stands_there = [&path](const auto& other) { return other.path == path; };
  const auto registered = registered_->all();
  if (!registered.ok() || std::ranges::any_of(*registered, stands_there)) return;
  const auto has = [&](const AdapterInfo& other) {
    return stands_there(other) || std::ranges::any_of(other.earlier, stands_there);
  };
  if (std::ranges::any_of(llm_.adapters(), has)) return;
  if (Status gone = uploads_->remove(path); !gone.ok()) CHORAL_LOG(kWarn, "{}", gone.message());
}

Status AdapterChanges::unregister(const std::string& name) {
  if (registered_ == nullptr) return {};
  CHORAL_TRY(const std::string before, registered_path(name));
  CHORAL_RETURN_IF_ERROR(registered_->remove(name));
  drop_upload(before);
  return {};
}

bool AdapterChanges::is_catalogued(std::string_view name) const {
  const auto view = catalogue_ == nullptr ? nullptr : catalogue_->now();
  return view != nullptr && (view->places.contains(name) || view->faults.contains(name));
}

// What is loaded is a copy that nobody writes to, so that each replica has these bytes under this name.
Result<AdapterInfo> AdapterChanges::load_for_all(AdapterSpec spec, bool replace, std::optional<int> expected_generation) {
  if (!replace && !expected_generation && is_catalogued(spec.name))
    return already_exists("adapter '{}' is in the catalogue; unload it first or ask to replace it", spec.name);
  CHORAL_TRY(const std::string place, catalogue_->take_in(spec.path));
  spec.path = place;
  if (Status loaded = llm_.load_adapter(spec, replace, expected_generation); !loaded.ok()) {
    catalogue_->drop(place);
    return loaded;
  }
  if (Status put = catalogue_->put(spec.name, present(spec.name).digest, place); !put.ok()) {
    if (Status gone = llm_.unload_adapter(spec.name, {}); !gone.ok()) CHORAL_LOG(kWarn, "{}", gone.message());
    catalogue_->drop(place);
    return std::move(put).while_("the adapter cannot be put into the catalogue, and is not loaded");
  }
  if (const auto known = llm_.vocabulary({{.name = spec.name}}); !known.ok())  // from now on it goes where the catalogue says
    CHORAL_LOG(kWarn, "adapter '{}': {}", spec.name, known.status().message());
  CHORAL_RETURN_IF_ERROR(unregister(spec.name).while_("the adapter is in the catalogue, and was registered here before"));
  return present(spec.name);
}

Status AdapterChanges::unload_for_all(const std::string& name, std::optional<int> expected_generation) {
  Status gone = llm_.unload_adapter(name, expected_generation);
  if (gone.code() == Code::kNotFound && expected_generation.value_or(0) != 0)
    return already_exists("adapter '{}' was never loaded here, so it is not at generation {}", name, *expected_generation);
  if (!gone.ok() && gone.code() != Code::kNotFound) return gone;
  CHORAL_RETURN_IF_ERROR(catalogue_->remove(name).status().while_("the adapter stays in the catalogue"));
  // A request may have asked for it in between.
  if (gone = llm_.unload_adapter(name, {}); !gone.ok() && gone.code() != Code::kNotFound) return gone;
  return unregister(name);
}

Result<AdapterInfo> AdapterChanges::load(const AdapterSpec& spec, bool replace, std::optional<int> expected_generation) {
  const NameTurns::Turn turn(turns_, spec.name);
  if (catalogue_ != nullptr) return load_for_all(spec, replace, expected_generation);
  const auto before = places_of(spec.name);
  CHORAL_RETURN_IF_ERROR(llm_.load_adapter(spec, replace, expected_generation));
  if (registered_ != nullptr) {
    Status kept =
        registered_->put({.name = spec.name, .path = spec.path, .pinned = spec.pinned, .added_unix_s = std::time(nullptr)});
    if (!kept.ok()) return std::move(kept).while_("the adapter is loaded, but will not be after a restart");
  }
  drop_left(spec.name, before);
  return present(spec.name);
}

Status AdapterChanges::unload(const std::string& name, std::optional<int> expected_generation) {
  const NameTurns::Turn turn(turns_, name);
  if (is_catalogued(name)) return unload_for_all(name, expected_generation);
  auto before = places_of(name);
  CHORAL_TRY(const std::string registered, registered_path(name));
  before.insert(registered);
  Status gone = llm_.unload_adapter(name, expected_generation);
  const bool could_not_be_loaded = gone.code() == Code::kNotFound && !registered.empty();
  if (!gone.ok() && !could_not_be_loaded) return gone;
  if (registered_ == nullptr) return {};
  CHORAL_RETURN_IF_ERROR(registered_->remove(name).while_("the adapter is gone, but will be back after a restart"));
  drop_left(name, before);
  return {};
}

Result<AdapterInfo> AdapterChanges::pin(const std::string& name, bool pinned) {
  const NameTurns::Turn turn(turns_, name);
  CHORAL_RETURN_IF_ERROR(llm_.pin_adapter(name, pinned));
  if (registered_ != nullptr)
    CHORAL_RETURN_IF_ERROR(registered_->set_pinned(name, pinned).while_("the pin will not be there after a restart"));
  return present(name);
}

Result<bool> AdapterChanges::forget_folder(const std::string& name, std::string_view path) {
  const NameTurns::Turn turn(turns_, name);
  const AdapterInfo known = present(name);
  if (known.path != path && !known.is_found) return false;
  CHORAL_TRY(const std::string registered, registered_path(name));
  if (!registered.empty()) return false;
  CHORAL_RETURN_IF_ERROR(llm_.unload_adapter(name, known.generation));
  return true;
}

}  // namespace choral::serve
