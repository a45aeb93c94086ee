// Adapter memory for tests of the scheduler: room for so many adapters, loads that take steps, adapters that fail, the one unused
// for longest dropped first. Whatever breaks the contract of adapter_residency.h is kept in fault(). Tests only.
#pragma once

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>

#include "sched/adapter_residency.h"

namespace choral::sched {

class SimulatedResidency : public AdapterResidency {
 public:
  SimulatedResidency(size_t room, int load_steps, std::set<int32_t> failing = {})
      : room_(room), load_steps_(load_steps), failing_(std::move(failing)) {}

  Residency acquire(Request& request) override {
    const int32_t key = request.adapter_key;
    if (key == 0) fault_ = "asked for the base";
    if (holders_.contains(&request)) fault_ = "a request that holds asked again";
    if (absent_.contains(key)) fault_ = fmt::format("asked twice in a step for the absent adapter {}", key);
    if (request.finished()) fault_ = "a finished request asked";
    if (failing_.contains(key)) return Residency::kFailed;
    auto found = adapters_.find(key);
    if (found == adapters_.end()) {
      if (adapters_.size() >= room_ && !drop_one()) return absent(key, Residency::kNoRoom);
      found = adapters_.emplace(key, Adapter{.load_left = load_steps_}).first;
      ++loads_;
    }
    Adapter& adapter = found->second;
    if (adapter.load_left > 0) return absent(key, Residency::kLoading);
    ++adapter.holds;
    holders_.insert(&request);
    return Residency::kResident;
  }

  void release(Request& request) override {
    if (holders_.erase(&request) == 0) fault_ = "released without a hold";
    Adapter& adapter = adapters_.at(request.adapter_key);
    --adapter.holds;
    adapter.last_use = ++clock_;
  }

  // Between two steps.
  void advance() {
    absent_.clear();
    for (auto& [key, adapter] : adapters_) {
      if (adapter.load_left > 0) --adapter.load_left;
    }
  }

  const std::string& fault() const { return fault_; }
  size_t holders() const { return holders_.size(); }
  bool holds(const Request& request) const { return holders_.contains(&request); }
  bool loading() const {
    for (const auto& [key, adapter] : adapters_) {
      if (adapter.load_left > 0) return true;
    }
    return false;
  }
  int64_t loads() const { return loads_; }

 private:
  struct Adapter {
    int load_left = 0;
    int holds = 0;
    uint64_t last_use = 0;
  };

  Residency absent(int32_t key, Residency answer) {
    absent_.insert(key);
    return answer;
  }

  bool drop_one() {
    auto oldest = adapters_.end();
    for (auto it = adapters_.begin(); it != adapters_.end(); ++it) {
      if (it->second.holds > 0 || it->second.load_left > 0) continue;
      if (oldest == adapters_.end() || it->second.last_use < oldest->second.last_use) oldest = it;
    }
    if (oldest == adapters_.end()) return false;
    adapters_.erase(oldest);
    return true;
  }

  size_t room_;
  int load_steps_;
  std::set<int32_t> failing_;
  std::map<int32_t, Adapter> adapters_;
  std::set<const Request*> holders_;
  std::set<int32_t> absent_;  // adapters that this step was told it cannot have
  uint64_t clock_ = 0;
  int64_t loads_ = 0;
  std::string fault_;
};

}  // namespace choral::sched
