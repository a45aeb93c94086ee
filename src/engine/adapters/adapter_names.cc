#include "engine/adapters/adapter_names.h"

#include <algorithm>

namespace choral::engine {

struct AdapterNameBoard::Entry : AdapterName {
  std::shared_ptr<const ShownInfo> shown;
};

void AdapterNameBoard::put(const std::string& name, std::shared_ptr<const ShownInfo> shown) {
  auto entry = std::make_shared<Entry>();
  entry->name = name;
  entry->path = shown->get(&AdapterInfo::path);
  entry->shown = std::move(shown);
  const std::lock_guard lock(changes_mutex_);
  changes_.insert_or_assign(name, std::move(entry));
}

void AdapterNameBoard::erase(const std::string& name) {
  const std::lock_guard lock(changes_mutex_);
  changes_.insert_or_assign(name, nullptr);
}

AdapterNames AdapterNameBoard::names() const {
  const std::lock_guard making(list_mutex_);
  {
    const std::lock_guard lock(changes_mutex_);
    if (merging_.empty()) {
      merging_.swap(changes_);
    } else {
      for (const auto& [name, entry] : changes_) merging_.insert_or_assign(name, entry);
      changes_.clear();
    }
  }
  if (merging_.empty()) return list_;
  std::vector<const Changes::value_type*> changed;
  for (const auto& change : merging_) changed.push_back(&change);
  std::sort(changed.begin(), changed.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  auto list = std::make_shared<AdapterNameList>();
  list->reserve(list_->size() + changed.size());
  auto next = changed.begin();
  const auto add_changed = [&] {
    if ((*next)->second != nullptr) list->push_back((*next)->second);
    ++next;
  };
  for (const auto& entry : *list_) {
    while (next != changed.end() && (*next)->first < entry->name) add_changed();
    if (next != changed.end() && (*next)->first == entry->name) {
      add_changed();
    } else {
      list->push_back(entry);
    }
  }
  while (next != changed.end()) add_changed();
  list_ = std::move(list);
  merging_.clear();
  ++lists_made_;
  return list_;
}

std::vector<AdapterInfo> AdapterNameBoard::infos() const {
  const AdapterNames all = names();
  std::vector<AdapterInfo> out;
  out.reserve(all->size());
  for (const auto& one : *all) out.push_back(static_cast<const Entry&>(*one).shown->get());
  return out;
}

int64_t AdapterNameBoard::lists_made() const {
  const std::lock_guard lock(list_mutex_);
  return lists_made_;
}

}  // namespace choral::engine
