#include "serve/adapters/adapter_changes.h"

#include <ctime>

namespace choral::serve {

AdapterInfo AdapterChanges::present(const std::string& name) const {
  if (auto adapter = llm_.adapter(name)) return *std::move(adapter);
  AdapterInfo gone;
  gone.name = name;
  return gone;
}

Result<AdapterInfo> AdapterChanges::load(const AdapterSpec& spec, bool replace, std::optional<int> expected_generation) {
  const NameTurns::Turn turn(turns_, spec.name);
  CHORAL_RETURN_IF_ERROR(llm_.load_adapter(spec, replace, expected_generation));
  if (registered_ != nullptr) {
    Status kept =
        registered_->put({.name = spec.name, .path = spec.path, .pinned = spec.pinned, .added_unix_s = std::time(nullptr)});
    if (!kept.ok()) return std::move(kept).while_("the adapter is loaded, but will not be after a restart");
  }
  return present(spec.name);
}

Status AdapterChanges::unload(const std::string& name, std::optional<int> expected_generation) {
  const NameTurns::Turn turn(turns_, name);
  CHORAL_RETURN_IF_ERROR(llm_.unload_adapter(name, expected_generation));
  if (registered_ == nullptr) return {};
  return registered_->remove(name).while_("the adapter is gone, but will be back after a restart");
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
  if (registered_ != nullptr) {
    CHORAL_TRY(const bool stays, registered_->contains(name));
    if (stays) return false;
  }
  CHORAL_RETURN_IF_ERROR(llm_.unload_adapter(name, known.generation));
  return true;
}

}  // namespace choral::serve
