// Adapter memory for tests of the scheduler: the engine's own rules (AdapterMemory) over adapters that have a size and weigh
// nothing, with loads that take steps and adapters whose load fails. Requests name their adapters by Request::adapter_ids.
// Whatever breaks the contract of adapter_gate.h is kept in fault(). Tests only.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sched/adapter_memory.h"

namespace choral::sched {

class SimulatedResidency : public AdapterGate {
 public:
  // `sizes`: bytes of adapters; the others have 1. `device_slots`: of the keys that hold, which come there in `upload_steps`.
  SimulatedResidency(int64_t budget_bytes, int load_steps, std::set<AdapterId> failing = {},
                     std::map<AdapterId, int64_t> sizes = {}, int64_t most_adapters = lora::kAnyNumber,
                     size_t device_slots = 1000, int upload_steps = 0)
      : memory_(budget_bytes, most_adapters),
        load_steps_(load_steps),
        failing_(std::move(failing)),
        sizes_(std::move(sizes)),
        device_slots_(device_slots),
        upload_steps_(upload_steps) {}

  // As the engine does it when a request comes; one that was never announced is when it first asks.
  void arrive(const Request& request) {
    if (request.adapter_key == kBaseKey || !waiting_.insert(&request).second) return;
    for (const AdapterId adapter : request.adapter_ids) {
      if (known_.insert(adapter).second) memory_.add(adapter, size_of(adapter));
    }
    std::vector<VoiceTerm> terms;
    for (const AdapterId adapter : request.adapter_ids)
      terms.push_back({adapter, static_cast<float>(request.adapter_key.value())});  // one voice a key
    voices_[request.adapter_key] = &memory_.join(std::move(terms));
  }
  // The request has ended, or was refused.
  void leave(const Request& request) {
    if (waiting_.erase(&request) == 1) memory_.leave(voice_of(request));
  }

  void begin_round() override { memory_.begin_round(); }

  bool prefetch(Request& request) override {
    arrive(request);
    if (has_failed(request)) return true;
    const bool had_room = memory_.prefetch(voice_of(request));
    start_loads();
    return had_room;
  }

  Residency acquire(Request& request) override {
    const AdapterKey key = request.adapter_key;
    if (key == kBaseKey) fault_ = "asked for the base";
    if (holders_.contains(&request)) fault_ = "a request that holds asked again";
    if (absent_.contains(key)) fault_ = fmt::format("asked twice in a step for the absent adapters {}", key.value());
    if (request.finished()) fault_ = "a finished request asked";
    arrive(request);
    Residency answer = ask(request);
    if (answer == Residency::kLoading && load_steps_ == 0) answer = ask(request);
    if (answer == Residency::kLoading || answer == Residency::kNoRoom) absent_.insert(key);
    if (answer != Residency::kResident) return answer;
    for (const AdapterId adapter : request.adapter_ids) {
      if (!memory_.resident(adapter)) fault_ = fmt::format("adapter {} is held and not in memory", adapter.value());
    }
    waiting_.erase(&request);
    holders_.insert(&request);
    return answer;
  }

  void release(Request& request) override {
    if (holders_.erase(&request) == 0) fault_ = "released without a hold";
    memory_.release(voice_of(request));
  }

  // Between two steps.
  void advance() {
    absent_.clear();
    for (auto& [adapter, left] : loading_) --left;
    for (auto& [key, left] : on_device_) left = std::max(left - 1, 0);
    end_loads();
  }

  const std::string& fault() const { return fault_; }
  size_t holders() const { return holders_.size(); }
  bool holds(const Request& request) const { return holders_.contains(&request); }
  bool loading() const {
    return !loading_.empty() || std::any_of(on_device_.begin(), on_device_.end(), [](const auto& one) { return one.second > 0; });
  }
  int64_t loads() const { return loads_; }
  AdapterMemory& memory() { return memory_; }
  const AdapterMemory& memory() const { return memory_; }

 private:
  int64_t size_of(AdapterId adapter) const { return sizes_.contains(adapter) ? sizes_.at(adapter) : 1; }

  Voice& voice_of(const Request& request) { return *voices_.at(request.adapter_key); }

  bool has_failed(const Request& request) const {
    return std::any_of(request.adapter_ids.begin(), request.adapter_ids.end(),
                       [this](AdapterId adapter) { return failed_.contains(adapter); });
  }

  Residency ask(const Request& request) {
    if (has_failed(request)) return Residency::kFailed;
    const Residency answer = memory_.acquire(voice_of(request));
    start_loads();
    if (answer != Residency::kResident) return answer;
    if (!device_has_room(request.adapter_key)) {
      memory_.hand_back(voice_of(request));
      return Residency::kNoRoom;
    }
    if (on_device_.emplace(request.adapter_key, upload_steps_).first->second == 0) return answer;
    memory_.hand_back(voice_of(request));
    return Residency::kLoading;
  }

  // A slot of its own for each key that is held or comes; the others leave when one is short.
  bool device_has_room(AdapterKey key) {
    std::set<AdapterKey> stay{key};
    for (const Request* holder : holders_) stay.insert(holder->adapter_key);
    for (const auto& [other, left] : on_device_) {
      if (left > 0) stay.insert(other);
    }
    if (stay.size() > device_slots_) return false;
    if (!on_device_.contains(key) && on_device_.size() >= device_slots_) {
      std::erase_if(on_device_, [&](const auto& one) { return !stay.contains(one.first); });
    }
    return true;
  }

  void start_loads() {
    std::vector<AdapterId> loads, drops;
    memory_.take_decisions(loads, drops);
    for (const AdapterId adapter : loads) {
      if (!loading_.emplace(adapter, load_steps_).second) fault_ = fmt::format("adapter {} is loaded twice", adapter.value());
    }
    loads_ += std::ssize(loads);
    if (load_steps_ == 0) end_loads();
  }

  void end_loads() {
    std::erase_if(loading_, [&](const auto& load) {
      const auto& [adapter, left] = load;
      if (left > 0) return false;
      if (failing_.contains(adapter)) {
        failed_.insert(adapter);
        memory_.fail(adapter);
      } else if (!memory_.arrive(adapter)) {
        fault_ = fmt::format("adapter {} was loaded without room", adapter.value());
      }
      return true;
    });
  }

  AdapterMemory memory_;
  int load_steps_;
  std::set<AdapterId> failing_;  // their files are bad
  std::map<AdapterId, int64_t> sizes_;
  size_t device_slots_;
  int upload_steps_;
  std::map<AdapterKey, Voice*> voices_;  // of live requests
  std::map<AdapterKey, int> on_device_;  // steps left until it is there
  std::set<AdapterId> known_;
  std::set<AdapterId> failed_;        // of failing_, those tried
  std::map<AdapterId, int> loading_;  // steps left
  std::set<const Request*> waiting_;
  std::set<const Request*> holders_;
  std::set<AdapterKey> absent_;  // keys that this step was told it cannot have
  int64_t loads_ = 0;
  std::string fault_;
};

}  // namespace choral::sched
