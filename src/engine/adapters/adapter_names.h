// Lists of a registry's adapters, for readers who list them or search for a near name. A list is immutable. A change of a name is
// only noted; the next reader makes the new list, under a lock that blocks no other thread. So thousands of names and any number
// of readers cost the engine thread, and requests that name an adapter, nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "choral/llm.h"

namespace choral::engine {

// Where a content is, for all the names that lead to it: the engine thread says it once, however many these are.
class ContentPlace {
 public:
  struct Now {
    AdapterState state = AdapterState::kOnDisk;
    int in_use = 0;
    uint64_t changes = 0;  // so far
  };
  void set(AdapterState state, int in_use) {
    const std::lock_guard lock(mutex_);
    now_ = {state, in_use, now_.changes + 1};
  }
  Now get() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }

 private:
  mutable std::mutex mutex_;
  Now now_;
};

// What is told of a version. Readers copy it, the registry and the engine thread change it, under a lock of its own that is held
// for one copy or one change. Its state is what was said last, of the version or of its content.
class ShownInfo {
 public:
  explicit ShownInfo(AdapterInfo info) : info_(std::move(info)) {}

  AdapterInfo get() const {
    const std::lock_guard lock(mutex_);
    AdapterInfo copy = info_;
    put_place(copy);
    return copy;
  }
  // Not of state and in_use.
  template <class T>
  T get(T AdapterInfo::*field) const {
    const std::lock_guard lock(mutex_);
    return info_.*field;
  }
  template <class Change>
  void change(Change change) {
    const std::lock_guard lock(mutex_);
    seen_changes_ = put_place(info_);
    change(info_);
  }
  // From now on.
  void share(std::shared_ptr<const ContentPlace> place) {
    const std::lock_guard lock(mutex_);
    place_ = std::move(place);
  }

 private:
  uint64_t put_place(AdapterInfo& info) const {
    if (place_ == nullptr) return 0;
    const auto now = place_->get();
    if (now.changes != seen_changes_) info.state = now.state;
    info.in_use = now.in_use;
    return now.changes;
  }

  mutable std::mutex mutex_;
  AdapterInfo info_;
  std::shared_ptr<const ContentPlace> place_;
  uint64_t seen_changes_ = 0;
};

class AdapterNameBoard {
 public:
  // The name is there from now on and tells this, whatever it told before.
  void put(const std::string& name, std::shared_ptr<const ShownInfo> shown);
  void erase(const std::string& name);

  // All names, sorted; the same list until one is put or erased.
  AdapterNames names() const;
  std::vector<AdapterInfo> infos() const;
  int64_t lists_made() const;

 private:
  struct Entry;
  using Changes = std::unordered_map<std::string, std::shared_ptr<const Entry>>;  // null: it is gone

  mutable std::mutex changes_mutex_;
  mutable Changes changes_;  // since the list was made
  mutable std::mutex list_mutex_;
  mutable Changes merging_;  // left from a list that could not be made
  mutable AdapterNames list_ = std::make_shared<const AdapterNameList>();
  mutable int64_t lists_made_ = 0;
};

}  // namespace choral::engine
