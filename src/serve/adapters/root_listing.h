// What the adapter root holds, from one scan to the next: a folder counts, and its going does, once it has been the same for a
// while. Knows no clock and no events: when to look says RootWatcher. One thread at a time.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/adapters/file_facts.h"
#include "lora/peft/adapters_in_root.h"

namespace choral::serve {

struct RootChange {
  enum class Kind : uint8_t { kAppeared, kChanged, kVanished };
  Kind kind = Kind::kAppeared;
  std::string name;
  std::string path;
};

class RootListing {
 public:
  explicit RootListing(std::string root) : root_(std::move(root)) {}

  // Looks at `found`, all that the root holds at `now`, and appends what has been the same for `quiet_s` and is news. True when
  // something has not, and should be looked at again. `placed`: somebody said where each name lies, so that it need not be the
  // root's folder of that name.
  bool take(const std::vector<lora::FoundAdapter>& found, double now, double quiet_s, std::vector<RootChange>& changes,
            bool placed = false);
  std::vector<lora::FoundAdapter> adapters() const;
  using Faults = std::map<std::string, Status, std::less<>>;  // by name
  Faults faults() const;

 private:
  struct Folder {
    std::string path;
    engine::AdapterFacts facts;  // as last seen
    engine::AdapterFacts told;   // as last told of
    double since_s = 0;          // they are as last seen
    bool judged = false;         // with these facts, by what they are
    bool listed = false;
    bool missing = false;  // since since_s
    Status fault;
  };
  void look(const lora::FoundAdapter& found, double now);
  void judge(const std::string& name, Folder& folder, bool placed, std::vector<RootChange>& changes);

  const std::string root_;
  std::map<std::string, Folder> folders_;  // by name
};

}  // namespace choral::serve
