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

void AdapterChanges::drop_upload(const std::string& path) {
  if (uploads_ == nullptr || !uploads_->has(path)) return;
  const auto stands_there = [&path](const auto& other) { return other.path == path; };
  const auto registered = registered_->all();
  if (!registered.ok() || std::ranges::any_of(*registered, stands_there)) return;
  if (std::ranges::any_of(llm_.adapters(), stands_there)) return;
  if (Status gone = uploads_->remove(path); !gone.ok()) CHORAL_LOG(kWarn, "{}", gone.message());
}

Result<AdapterInfo> AdapterChanges::load(const AdapterSpec& spec, bool replace, std::optional<int> expected_generation) {
  const NameTurns::Turn turn(turns_, spec.name);
  CHORAL_TRY(const std::string before, registered_path(spec.name));
  CHORAL_RETURN_IF_ERROR(llm_.load_adapter(spec, replace, expected_generation));
  if (registered_ != nullptr) {
    Status kept =
        registered_->put({.name = spec.name, .path = spec.path, .pinned = spec.pinned, .added_unix_s = std::time(nullptr)});
    if (!kept.ok()) return std::move(kept).while_("the adapter is loaded, but will not be after a restart");
  }
  if (before != spec.path) drop_upload(before);
  return present(spec.name);
}

Status AdapterChanges::unload(const std::string& name, std::optional<int> expected_generation) {
  const NameTurns::Turn turn(turns_, name);
  CHORAL_TRY(const std::string before, registered_path(name));
  Status gone = llm_.unload_adapter(name, expected_generation);
  const bool could_not_be_loaded = gone.code() == Code::kNotFound && !before.empty();
  if (!gone.ok() && !could_not_be_loaded) return gone;
  if (registered_ == nullptr) return {};
  CHORAL_RETURN_IF_ERROR(registered_->remove(name).while_("the adapter is gone, but will be back after a restart"));
  drop_upload(before);
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
  if (known.path != path) return false;
  CHORAL_TRY(const std::string registered, registered_path(name));
  if (!registered.empty()) return false;
  CHORAL_RETURN_IF_ERROR(llm_.unload_adapter(name, known.generation));
  return true;
}

}  // namespace choral::serve
