#include "sched/adapter_memory.h"

#include <algorithm>
#include <iterator>

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
  keep(demand);
}

void AdapterMemory::leave(AdapterKey key) {
  Demand& demand = demands_.at(key);
  CHORAL_CHECK(demand.waiting > 0, "a request leaves that does not wait for its adapters");
  if (--demand.waiting == 0) give_up_claim(demand);
  forget_if_empty(key);
}

bool AdapterMemory::prefetch(AdapterKey key) {
  Demand& demand = demands_.at(key);
  if (demand.claimed || demand.holders > 0) return true;
  const MemoryAmount &budget = tiers_.budget(MemoryTier::kHost), &used = tiers_.used(MemoryTier::kHost);
  const bool has_free_room = missing(demand).within({budget.bytes - used.bytes, budget.adapters - used.adapters});
  return has_free_room && claim(demand);
}

Residency AdapterMemory::acquire(AdapterKey key) {
  Demand& demand = demands_.at(key);
  demand.round = round_;
  demand.place = asked_++;
  const bool is_complete = complete(demand);
  if (!is_complete && !demand.claimed) {
    if (!needed(key).within(usable(key))) return Residency::kFailed;
    if (!claim(demand) && !claim_before_others(demand)) return Residency::kNoRoom;
  }
  if (!is_complete) return Residency::kLoading;
  for (const AdapterId adapter : demand.adapters) {
    ++adapters_.at(adapter).holders;
    if (!demand.claimed) tiers_.acquire(adapter);
  }
  set_claimed(demand, false);  // what it kept in use is this request's from here on
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
  keep(demand);
  forget_if_empty(key);
}

void AdapterMemory::hand_back(AdapterKey key) {
  ++demands_.at(key).waiting;
  release(key);
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
  for (auto& [key, demand] : demands_) keep(demand);
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

MemoryAmount AdapterMemory::missing(const Demand& demand) const {
  MemoryAmount sum;
  for (const AdapterId adapter : demand.adapters) {
    if (!has_room(adapter)) add_one(sum, size_bytes(adapter));
  }
  return sum;
}

// All or nothing: without room for all that is missing nobody is dropped and nothing is loaded.
bool AdapterMemory::claim(Demand& demand) {
  const auto answer = tiers_.make_room(missing(demand), MemoryTier::kHost, demand.adapters);
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
  set_claimed(demand, true);
  return true;
}

// Those who were not asked in this round come later. They give up their claims, the last of them first, so that its adapters are
// the first to go; who loses none of them has its claim back.
bool AdapterMemory::claim_before_others(Demand& demand) {
  later_.clear();
  std::copy_if(claims_.begin(), claims_.end(), std::back_inserter(later_),
               [this](const Demand* o) { return o->round != round_; });
  std::sort(later_.begin(), later_.end(),
            [](const Demand* a, const Demand* b) { return a->round != b->round ? a->round < b->round : a->place > b->place; });
  for (Demand* other : later_) give_up_claim(*other);
  const bool claimed = !later_.empty() && claim(demand);
  for (Demand* other : later_) keep(*other);
  return claimed;
}

// With adapters that are all in memory, whoever waits has a claim; held ones need none.
void AdapterMemory::keep(Demand& demand) {
  if (demand.waiting == 0 || demand.claimed || demand.holders > 0 || !complete(demand)) return;
  for (const AdapterId adapter : demand.adapters) tiers_.acquire(adapter);
  set_claimed(demand, true);
}

void AdapterMemory::give_up_claim(Demand& demand) {
  if (!demand.claimed) return;
  set_claimed(demand, false);
  for (const AdapterId adapter : demand.adapters) tiers_.release(adapter);
}

void AdapterMemory::set_claimed(Demand& demand, bool claimed) {
  if (demand.claimed == claimed) return;
  demand.claimed = claimed;
  if (claimed) {
    claims_.push_back(&demand);
  } else {
    claims_.erase(std::find(claims_.begin(), claims_.end(), &demand));
  }
}

void AdapterMemory::drop(const lora::MemoryAnswer& answer) {
  for (const auto& eviction : answer.evictions) drops_.push_back(eviction.id);
}

void AdapterMemory::forget_if_empty(AdapterKey key) {
  const auto found = demands_.find(key);
  if (found->second.waiting == 0 && found->second.holders == 0) demands_.erase(found);
}

}  // namespace choral::sched
