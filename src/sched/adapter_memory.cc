#include "sched/adapter_memory.h"

#include <algorithm>

#include "base/check.h"

namespace choral::sched {

using lora::MemoryAmount;
using lora::MemoryTier;
namespace {

void add_one(MemoryAmount& amount, int64_t size_bytes) {
  amount.bytes += size_bytes;
  ++amount.adapters;
}

}  // namespace

AdapterMemory::AdapterMemory(int64_t budget_bytes, int64_t most_adapters)
    : tiers_({.host_bytes = budget_bytes, .host_adapters = most_adapters}) {}

void AdapterMemory::add(AdapterId adapter, int64_t size_bytes) {
  const bool added = adapters_.emplace(adapter, Adapter{}).second;
  CHORAL_CHECK(added, "an adapter is added twice");
  tiers_.reserve(adapter, size_bytes, MemoryTier::kDisk);
}

void AdapterMemory::remove(AdapterId adapter) {
  CHORAL_CHECK(!loading(adapter), "an adapter is removed while it is loaded");
  const Status removed = tiers_.remove(adapter);
  CHORAL_CHECK(removed.ok(), removed.message());
  adapters_.erase(adapter);
}

void AdapterMemory::join(AdapterKey key, std::span<const AdapterId> adapters) {
  Demand& demand = demands_[key];
  if (demand.adapters.empty()) demand.adapters.assign(adapters.begin(), adapters.end());
  ++demand.waiting;
}

void AdapterMemory::leave(AdapterKey key) {
  Demand& demand = demands_.at(key);
  CHORAL_CHECK(demand.waiting > 0, "a request leaves that does not wait for its adapters");
  if (--demand.waiting == 0) {
    give_up_claim(demand);
    if (starved_key_ == key) starved_key_ = kBaseKey;
  }
  forget_if_empty(key);
}

void AdapterMemory::prefetch(AdapterKey key) {
  Demand& demand = demands_.at(key);
  if (starved_key_ == kBaseKey && !demand.claimed && !complete(demand) && needed(key).within(usable(key))) claim(demand);
}

Residency AdapterMemory::acquire(AdapterKey key, bool promoted) {
  Demand& demand = demands_.at(key);
  const bool is_complete = complete(demand);
  if (!is_complete && !demand.claimed) {
    if (!needed(key).within(usable(key))) return Residency::kFailed;
    bool claimed = claim(demand);
    if (!claimed && promoted) {
      for (auto& [other_key, other] : demands_) give_up_claim(other);
      claimed = claim(demand);
      if (!claimed) starved_key_ = key;
    }
    if (!claimed) return Residency::kNoRoom;
  }
  if (starved_key_ == key) starved_key_ = kBaseKey;
  if (!is_complete) return Residency::kLoading;
  for (const AdapterId adapter : demand.adapters) {
    ++adapters_.at(adapter).holders;
    if (!demand.claimed) tiers_.acquire(adapter);
  }
  demand.claimed = false;  // what it kept in use is this request's from here on
  --demand.waiting;
  ++demand.holders;
  return Residency::kResident;
}

void AdapterMemory::release(AdapterKey key) {
  Demand& demand = demands_.at(key);
  CHORAL_CHECK(demand.holders > 0, "adapters are released more often than acquired");
  for (const AdapterId adapter : demand.adapters) {
    --adapters_.at(adapter).holders;
    tiers_.release(adapter);
  }
  --demand.holders;
  forget_if_empty(key);
}

void AdapterMemory::hand_back(AdapterKey key) {
  ++demands_.at(key).waiting;
  release(key);
}

void AdapterMemory::hand_back_claimed(AdapterKey key) {
  Demand& demand = demands_.at(key);
  for (const AdapterId adapter : demand.adapters) tiers_.acquire(adapter);  // the claim's, before the holder's is given back
  hand_back(key);
  demand.claimed = true;
}

bool AdapterMemory::arrive(AdapterId adapter) {
  Adapter& known = adapters_.at(adapter);
  if (known.loading) {
    known.loading = false;
    tiers_.release(adapter);
  } else if (!has_room(adapter)) {
    const auto answer = tiers_.reserve(adapter, size_bytes(adapter));
    if (!answer.ok()) return false;
    drop(answer);
  }
  return true;
}

void AdapterMemory::fail(AdapterId adapter) {
  Adapter& known = adapters_.at(adapter);
  if (!known.loading) return;
  for (auto& [key, demand] : demands_) {
    if (std::find(demand.adapters.begin(), demand.adapters.end(), adapter) != demand.adapters.end()) give_up_claim(demand);
  }
  known.loading = false;
  tiers_.release(adapter);
  const Status dropped = tiers_.drop(adapter, MemoryTier::kHost);
  CHORAL_CHECK(dropped.ok(), dropped.message());
}

void AdapterMemory::take_decisions(std::vector<AdapterId>& loads, std::vector<AdapterId>& drops) {
  loads.insert(loads.end(), loads_.begin(), loads_.end());
  drops.insert(drops.end(), drops_.begin(), drops_.end());
  loads_.clear();
  drops_.clear();
}

int64_t AdapterMemory::size_bytes(AdapterId adapter) const {
  return tiers_.find(adapter)->bytes[static_cast<size_t>(MemoryTier::kDisk)];
}

bool AdapterMemory::has_room(AdapterId adapter) const { return tiers_.find(adapter)->on(MemoryTier::kHost); }

int32_t AdapterMemory::holders(AdapterKey key) const {
  const auto found = demands_.find(key);
  return found == demands_.end() ? 0 : found->second.holders;
}

MemoryAmount AdapterMemory::needed(AdapterKey key) const {
  MemoryAmount sum;
  for (const AdapterId adapter : demands_.at(key).adapters) add_one(sum, size_bytes(adapter));
  return sum;
}

MemoryAmount AdapterMemory::usable(AdapterKey key) const {
  const MemoryAmount &budget = tiers_.budget(MemoryTier::kHost), pinned = tiers_.pinned(MemoryTier::kHost);
  MemoryAmount left{budget.bytes - pinned.bytes, budget.adapters - pinned.adapters};
  for (const AdapterId adapter : demands_.at(key).adapters) {
    if (tiers_.find(adapter)->pinned) add_one(left, size_bytes(adapter));
  }
  return left;
}

bool AdapterMemory::complete(const Demand& demand) const {
  return std::all_of(demand.adapters.begin(), demand.adapters.end(), [&](AdapterId adapter) { return resident(adapter); });
}

// All or nothing: without room for all that is missing nobody is dropped and nothing is loaded.
bool AdapterMemory::claim(Demand& demand) {
  MemoryAmount missing;
  for (const AdapterId adapter : demand.adapters) {
    if (!has_room(adapter)) add_one(missing, size_bytes(adapter));
  }
  const auto answer = tiers_.make_room(missing, MemoryTier::kHost, demand.adapters);
  if (!answer.ok()) return false;
  drop(answer);
  for (const AdapterId adapter : demand.adapters) {
    if (!has_room(adapter)) {
      const auto reserved = tiers_.reserve(adapter, size_bytes(adapter));
      CHORAL_CHECK(reserved.room == lora::MemoryRoom::kFits, "room for an adapter was miscounted");
      adapters_.at(adapter).loading = true;
      tiers_.acquire(adapter);  // the load's, whoever still wants it when it ends
      loads_.push_back(adapter);
    }
    tiers_.acquire(adapter);
  }
  demand.claimed = true;
  return true;
}

void AdapterMemory::give_up_claim(Demand& demand) {
  if (!demand.claimed) return;
  demand.claimed = false;
  for (const AdapterId adapter : demand.adapters) tiers_.release(adapter);
}

void AdapterMemory::drop(const lora::MemoryAnswer& answer) {
  for (const auto& eviction : answer.evictions) drops_.push_back(eviction.id);
}

void AdapterMemory::forget_if_empty(AdapterKey key) {
  const auto found = demands_.find(key);
  if (found->second.waiting == 0 && found->second.holders == 0) demands_.erase(found);
}

}  // namespace choral::sched
