#include "serve/adapters/adapter_numbers.h"

#include <utility>

#include "base/log.h"

namespace choral::serve {

Status AdapterNumbers::read() {
  if (registered_ == nullptr) return {};
  CHORAL_TRY(auto known, registered_->numbers());
  const std::lock_guard adding(adding_);
  const std::lock_guard lock(mutex_);
  for (auto& [name, number] : known) {
    numbers_.emplace(name, number);
    names_.push_back(std::move(name));
  }
  kept_ = names_.size();
  return {};
}

void AdapterNumbers::add(std::span<const std::string> names) {
  const std::lock_guard adding(adding_);
  std::vector<NumberedName> fresh;  // or could not be kept before
  {
    const std::lock_guard lock(mutex_);
    for (const auto& name : names) {
      if (names_.size() >= static_cast<size_t>(RegisteredAdapters::kMaxAdapters)) break;
      if (numbers_.emplace(name, static_cast<int32_t>(names_.size())).second) names_.push_back(name);
    }
    for (size_t i = kept_; i < names_.size(); ++i) fresh.push_back({names_[i], static_cast<int32_t>(i)});
  }
  if (registered_ == nullptr || fresh.empty()) return;
  const Status kept = registered_->put_numbers(fresh);
  if (kept.ok()) kept_ += fresh.size();
  if (!kept.ok() && !std::exchange(complained_, true))
    CHORAL_LOG(kError, "the numbers of adapters may be others after a restart: {}", kept.message());
}

std::optional<int32_t> AdapterNumbers::number_of(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> AdapterNumbers::name_of(int32_t number) const {
  const std::lock_guard lock(mutex_);
  if (number < 0 || static_cast<size_t>(number) >= names_.size()) return std::nullopt;
  return names_[static_cast<size_t>(number)];
}

}  // namespace choral::serve
