#include "sched/adapter_memory.h"

#include <algorithm>

#include "base/check.h"

namespace choral::sched {

using lora::MemoryTier;

AdapterMemory::AdapterMemory(int64_t budget_bytes) : tiers_({.host_bytes = budget_bytes}) {}

void AdapterMemory::add(int32_t adapter, int64_t size_bytes) {
  const bool added = adapters_.emplace(adapter, Adapter{.size_bytes = size_bytes}).second;
  CHORAL_CHECK(added, "an adapter is added twice");
  tiers_.reserve(adapter, size_bytes, MemoryTier::kDisk);
}

void AdapterMemory::remove(int32_t adapter) {
  CHORAL_CHECK(!loading(adapter), "an adapter is removed while it is loaded");
  const Status removed = tiers_.remove(adapter);
  CHORAL_CHECK(removed.ok(), removed.message());
  adapters_.erase(adapter);
}

void AdapterMemory::join(int32_t key, std::span<const int32_t> adapters) {
  Voice& voice = voices_[key];
  if (voice.adapters.empty()) voice.adapters.assign(adapters.begin(), adapters.end());
  ++voice.waiting;
}

void AdapterMemory::leave(int32_t key) {
  Voice& voice = voices_.at(key);
  CHORAL_CHECK(voice.waiting > 0, "a request leaves that does not wait for its adapters");
  if (--voice.waiting == 0) {
    give_up_claim(voice);
    if (starved_key_ == key) starved_key_ = 0;
  }
  forget_if_empty(key);
}

void AdapterMemory::prefetch(int32_t key) {
  Voice& voice = voices_.at(key);
  if (starved_key_ == 0 && !voice.claimed && !complete(voice) && needed_bytes(key) <= usable_bytes(key)) claim(voice);
}

Residency AdapterMemory::acquire(int32_t key, bool promoted) {
  Voice& voice = voices_.at(key);
  const bool is_complete = complete(voice);
  if (!is_complete && !voice.claimed) {
    if (needed_bytes(key) > usable_bytes(key)) return Residency::kFailed;
    bool claimed = claim(voice);
    if (!claimed && promoted) {
      for (auto& [other_key, other] : voices_) give_up_claim(other);
      claimed = claim(voice);
      if (!claimed) starved_key_ = key;
    }
    if (!claimed) return Residency::kNoRoom;
  }
  if (starved_key_ == key) starved_key_ = 0;
  if (!is_complete) return Residency::kLoading;
  for (const int32_t adapter : voice.adapters) {
    ++adapters_.at(adapter).holders;
    if (!voice.claimed) tiers_.acquire(adapter);
  }
  voice.claimed = false;  // what it kept in use is this request's from here on
  --voice.waiting;
  ++voice.holders;
  return Residency::kResident;
}

void AdapterMemory::release(int32_t key) {
  Voice& voice = voices_.at(key);
  CHORAL_CHECK(voice.holders > 0, "adapters are released more often than acquired");
  for (const int32_t adapter : voice.adapters) {
    --adapters_.at(adapter).holders;
    tiers_.release(adapter);
  }
  --voice.holders;
  forget_if_empty(key);
}

bool AdapterMemory::arrive(int32_t adapter) {
  Adapter& known = adapters_.at(adapter);
  switch (known.state) {
    case State::kResident: return true;
    case State::kLoading: tiers_.release(adapter); break;
    case State::kOnDisk: {
      const auto answer = tiers_.reserve(adapter, known.size_bytes);
      if (!answer.ok()) return false;
      drop(answer);
    }
  }
  known.state = State::kResident;
  return true;
}

void AdapterMemory::fail(int32_t adapter) {
  Adapter& known = adapters_.at(adapter);
  if (known.state != State::kLoading) return;
  for (auto& [key, voice] : voices_) {
    if (std::find(voice.adapters.begin(), voice.adapters.end(), adapter) != voice.adapters.end()) give_up_claim(voice);
  }
  known.state = State::kOnDisk;
  tiers_.release(adapter);
  const Status dropped = tiers_.drop(adapter, MemoryTier::kHost);
  CHORAL_CHECK(dropped.ok(), dropped.message());
}

void AdapterMemory::take_decisions(std::vector<int32_t>& loads, std::vector<int32_t>& drops) {
  loads.insert(loads.end(), loads_.begin(), loads_.end());
  drops.insert(drops.end(), drops_.begin(), drops_.end());
  loads_.clear();
  drops_.clear();
}

int64_t AdapterMemory::needed_bytes(int32_t key) const {
  int64_t bytes = 0;
  for (const int32_t adapter : voices_.at(key).adapters) bytes += adapters_.at(adapter).size_bytes;
  return bytes;
}

int64_t AdapterMemory::usable_bytes(int32_t key) const {
  int64_t bytes = tiers_.budget_bytes(MemoryTier::kHost) - tiers_.pinned_bytes(MemoryTier::kHost);
  for (const int32_t adapter : voices_.at(key).adapters) {
    if (tiers_.find(adapter)->pinned) bytes += adapters_.at(adapter).size_bytes;
  }
  return bytes;
}

bool AdapterMemory::complete(const Voice& voice) const {
  return std::all_of(voice.adapters.begin(), voice.adapters.end(), [&](int32_t adapter) { return resident(adapter); });
}

// All or nothing: without room for all that is missing nobody is dropped and nothing is loaded.
bool AdapterMemory::claim(Voice& voice) {
  int64_t missing_bytes = 0;
  for (const int32_t adapter : voice.adapters) {
    const Adapter& known = adapters_.at(adapter);
    if (known.state == State::kOnDisk) missing_bytes += known.size_bytes;
  }
  const auto answer = tiers_.make_room(missing_bytes, MemoryTier::kHost, voice.adapters);
  if (!answer.ok()) return false;
  drop(answer);
  for (const int32_t adapter : voice.adapters) {
    Adapter& known = adapters_.at(adapter);
    if (known.state == State::kOnDisk) {
      const auto reserved = tiers_.reserve(adapter, known.size_bytes);
      CHORAL_CHECK(reserved.room == lora::MemoryRoom::kFits, "room for an adapter was miscounted");
      known.state = State::kLoading;
      tiers_.acquire(adapter);  // the load's, whoever still wants it when it ends
      loads_.push_back(adapter);
    }
    tiers_.acquire(adapter);
  }
  voice.claimed = true;
  return true;
}

void AdapterMemory::give_up_claim(Voice& voice) {
  if (!voice.claimed) return;
  voice.claimed = false;
  for (const int32_t adapter : voice.adapters) tiers_.release(adapter);
}

void AdapterMemory::drop(const lora::MemoryAnswer& answer) {
  for (const auto& eviction : answer.evictions) {
    adapters_.at(eviction.id).state = State::kOnDisk;
    drops_.push_back(eviction.id);
  }
}

void AdapterMemory::forget_if_empty(int32_t key) {
  const auto found = voices_.find(key);
  if (found->second.waiting == 0 && found->second.holders == 0) voices_.erase(found);
}

}  // namespace choral::sched
