#include "lora/store/lora_memory_manager.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/check.h"

namespace choral::lora {
namespace {

size_t index(MemoryTier tier) { return static_cast<size_t>(tier); }

std::string_view tier_name(MemoryTier tier) {
  switch (tier) {
    case MemoryTier::kDisk: return "disk";
    case MemoryTier::kHost: return "host";
    case MemoryTier::kDevice: return "device";
  }
  return "";
}

constexpr MemoryTier kTiers[] = {MemoryTier::kDisk, MemoryTier::kHost, MemoryTier::kDevice};

}  // namespace

LoRAMemoryManager::LoRAMemoryManager(const MemoryBudgets& budgets)
    : budgets_{
          {{budgets.disk_bytes, kAnyNumber}, {budgets.host_bytes, budgets.host_adapters}, {budgets.device_bytes, kAnyNumber}}} {
  for (const auto& budget : budgets_) CHORAL_CHECK(MemoryAmount{}.within(budget), "a memory budget is negative");
}

MemoryAnswer LoRAMemoryManager::plan(std::span<const AdapterId> keep, const MemoryAmount& more, MemoryTier tier) const {
  MemoryAmount missing{more.bytes - free_bytes(tier), more.adapters - (budget(tier).adapters - used(tier).adapters)};
  if (missing.within({})) return {};
  if (!more.within(budget(tier))) return {MemoryRoom::kTooLarge, {}};
  MemoryAnswer answer{MemoryRoom::kFitsAfterEviction, {}};
  const auto take_from = [&](const auto& candidates) {
    for (const AdapterId id : candidates) {
      const MemoryRecord& record = records_.at(id);
      if (!may_leave(record, tier) || std::find(keep.begin(), keep.end(), id) != keep.end()) continue;
      const int64_t bytes = record.bytes[index(tier)];
      if (bytes == 0 && missing.adapters <= 0) continue;  // its leaving would help nobody
      const bool forgotten = tier == MemoryTier::kDisk || (tier == MemoryTier::kHost && !record.on(MemoryTier::kDisk));
      answer.evictions.push_back({id, tier, forgotten});
      missing.bytes -= bytes;
      --missing.adapters;
      if (missing.within({})) return true;
    }
    return false;
  };
  const bool enough = tier == MemoryTier::kHost ? take_from(idle_) : take_from(by_use(tier));
  return enough ? answer : MemoryAnswer{MemoryRoom::kNoRoom, {}};
}

std::vector<AdapterId> LoRAMemoryManager::by_use(MemoryTier tier) const {
  std::vector<AdapterId> all;
  for (const auto& [id, record] : records_) {
    if (record.on(tier)) all.push_back(id);
  }
  std::sort(all.begin(), all.end(),
            [this](AdapterId a, AdapterId b) { return records_.at(a).last_use < records_.at(b).last_use; });
  return all;
}

template <class Change>
void LoRAMemoryManager::change(MemoryRecord& record, Change change) {
  count_pin(record, -1);
  change();
  count_pin(record, +1);
  put_into_list(record);
}

void LoRAMemoryManager::count_pin(const MemoryRecord& record, int sign) {
  for (const MemoryTier t : kTiers) {
    if (!record.pinned || t > *record.pinned || !record.on(t)) continue;
    pinned_[index(t)].bytes += sign * record.bytes[index(t)];
    pinned_[index(t)].adapters += sign;
  }
}

// Mostly it was used just now; only one that was unpinned may have its place further in front.
void LoRAMemoryManager::put_into_list(MemoryRecord& record) {
  rest_.splice(rest_.end(), record.is_idle ? idle_ : rest_, record.place);
  record.is_idle = record.on(MemoryTier::kHost) && may_leave(record, MemoryTier::kHost);
  if (!record.is_idle) return;
  auto behind = idle_.end();
  while (behind != idle_.begin() && records_.at(*std::prev(behind)).last_use > record.last_use) --behind;
  idle_.splice(behind, rest_, record.place);
}

MemoryAnswer LoRAMemoryManager::ask(AdapterId id, int64_t bytes, MemoryTier tier) const {
  CHORAL_CHECK(bytes >= 0, "an adapter has a negative number of bytes");
  const MemoryRecord* record = find(id);
  CHORAL_CHECK(tier != MemoryTier::kDevice || (record != nullptr && record->on(MemoryTier::kHost)),
               "an adapter comes to the device from the host");
  if (bytes > budget_bytes(tier)) return {MemoryRoom::kTooLarge, {}};
  const bool there = record != nullptr && record->on(tier);
  const int64_t present = there ? record->bytes[index(tier)] : 0;
  const bool pinned = record != nullptr && record->pinned && *record->pinned >= tier;
  if (pinned && pinned_bytes(tier) - present + bytes > pinnable_bytes(tier)) return {MemoryRoom::kNoRoom, {}};
  return plan({&id, 1}, {bytes - present, there ? 0 : 1}, tier);
}

MemoryAnswer LoRAMemoryManager::reserve(AdapterId id, int64_t bytes, MemoryTier tier) {
  MemoryAnswer answer = ask(id, bytes, tier);
  if (!answer.ok()) return answer;
  apply(answer);
  const auto [found, is_new] = records_.try_emplace(id);
  MemoryRecord& record = found->second;
  if (is_new) record.place = rest_.insert(rest_.end(), id);
  change(record, [&] {
    int64_t& present = record.bytes[index(tier)];
    if (present < 0) {
      ++record.loads;
      ++used_[index(tier)].adapters;
      present = 0;
    }
    used_[index(tier)].bytes += bytes - present;
    present = bytes;
    record.last_use = ++clock_;
  });
  return answer;
}

MemoryAnswer LoRAMemoryManager::allocate_adapter(AdapterId id, int64_t bytes) { return reserve(id, bytes, MemoryTier::kDevice); }

std::optional<AdapterId> LoRAMemoryManager::evict_to_cpu() {
  const std::pair<const AdapterId, MemoryRecord>* oldest = nullptr;
  for (const auto& entry : records_) {
    if (!entry.second.on(MemoryTier::kDevice) || !may_leave(entry.second, MemoryTier::kDevice)) continue;
    if (oldest == nullptr || entry.second.last_use < oldest->second.last_use) oldest = &entry;
  }
  if (oldest == nullptr) return std::nullopt;
  const AdapterId id = oldest->first;
  apply({MemoryRoom::kFitsAfterEviction, {{id, MemoryTier::kDevice, false}}});
  return id;
}

MemoryAnswer LoRAMemoryManager::make_room(const MemoryAmount& amount, MemoryTier tier, std::span<const AdapterId> keep) {
  CHORAL_CHECK(MemoryAmount{}.within(amount), "a negative amount of memory is to be freed");
  MemoryAnswer answer = plan(keep, amount, tier);
  apply(answer);
  return answer;
}

void LoRAMemoryManager::apply(const MemoryAnswer& answer) {
  for (const MemoryEviction& eviction : answer.evictions) {
    ++records_.at(eviction.id).evictions;
    ++evictions_;
    const bool forgotten = leave(eviction.id, eviction.from);
    CHORAL_CHECK(forgotten == eviction.forgotten, "an eviction went elsewhere than planned");
  }
}

bool LoRAMemoryManager::may_leave(const MemoryRecord& record, MemoryTier tier) const {
  if (record.in_use > 0 || (record.pinned && *record.pinned >= tier)) return false;
  return tier != MemoryTier::kDisk || !record.on(MemoryTier::kHost);  // what is in memory keeps its file
}

bool LoRAMemoryManager::leave(AdapterId id, MemoryTier tier) {
  const auto found = records_.find(id);
  MemoryRecord& record = found->second;
  change(record, [&] {
    for (const MemoryTier t : kTiers) {
      // Off the host is off the device; the disk is left alone by those above it.
      if (t < tier || !record.on(t)) continue;
      used_[index(t)].bytes -= record.bytes[index(t)];
      --used_[index(t)].adapters;
      record.bytes[index(t)] = -1;
    }
  });
  const bool forgotten = std::none_of(std::begin(kTiers), std::end(kTiers), [&](MemoryTier t) { return record.on(t); });
  if (forgotten) {
    rest_.erase(record.place);
    records_.erase(found);
  }
  return forgotten;
}

MemoryRecord& LoRAMemoryManager::known(AdapterId id) {
  const auto found = records_.find(id);
  CHORAL_CHECK(found != records_.end(), "an adapter that the memory manager does not know");
  return found->second;
}

void LoRAMemoryManager::acquire(AdapterId id) {
  MemoryRecord& record = known(id);
  CHORAL_CHECK(record.on(MemoryTier::kHost), "an adapter is used that is not in memory");
  change(record, [&] {
    ++record.in_use;
    ++record.uses;
    record.last_use = ++clock_;
  });
}

void LoRAMemoryManager::release(AdapterId id) {
  MemoryRecord& record = known(id);
  CHORAL_CHECK(record.in_use > 0, "an adapter is released more often than acquired");
  change(record, [&] {
    --record.in_use;
    record.last_use = ++clock_;
  });
}

Status LoRAMemoryManager::pin(AdapterId id, MemoryTier tier) {
  const auto found = records_.find(id);
  if (found == records_.end()) return not_found("adapter {} is not known to the memory manager", id.value());
  MemoryRecord& record = found->second;
  if (!record.on(tier)) {
    return unavailable("adapter {} is not in {} memory and cannot be pinned there; load it first", id.value(), tier_name(tier));
  }
  for (const MemoryTier t : kTiers) {
    if (t > tier || !record.on(t)) continue;
    const bool counted = record.pinned && *record.pinned >= t;
    const int64_t own = record.bytes[index(t)];
    const MemoryAmount before = pinned(t), most = pinnable(t);
    const MemoryAmount with{before.bytes + (counted ? 0 : own), before.adapters + (counted ? 0 : 1)};
    if (with.adapters > most.adapters) {
      return resource_exhausted("pinning adapter {} would pin {} of {} adapters in {} memory, at most {} may be; unpin another",
                                id.value(), with.adapters, budget(t).adapters, tier_name(t), most.adapters);
    }
    if (with.bytes > most.bytes) {
      return resource_exhausted(
          "pinning adapter {} ({} bytes) would pin {} of {} bytes of {} memory, at most {} may be; unpin another or raise the "
          "budget",
          id.value(), own, with.bytes, budget_bytes(t), tier_name(t), most.bytes);
    }
  }
  change(record, [&] { record.pinned = tier; });
  return {};
}

void LoRAMemoryManager::unpin(AdapterId id) {
  MemoryRecord& record = known(id);
  change(record, [&] { record.pinned.reset(); });
}

Status LoRAMemoryManager::drop(AdapterId id, MemoryTier tier) {
  const auto found = records_.find(id);
  if (found == records_.end() || !found->second.on(tier))
    return not_found("adapter {} is not in {} memory", id.value(), tier_name(tier));
  if (!may_leave(found->second, tier)) {
    return unavailable("adapter {} cannot leave {} memory: {}", id.value(), tier_name(tier),
                       found->second.in_use > 0 ? "it is in use"
                       : found->second.pinned   ? "it is pinned"
                                                : "it is loaded");
  }
  leave(id, tier);
  return {};
}

Status LoRAMemoryManager::remove(AdapterId id) {
  const auto found = records_.find(id);
  if (found == records_.end()) return not_found("adapter {} is not known to the memory manager", id.value());
  if (found->second.in_use > 0) return unavailable("adapter {} is in use {} times", id.value(), found->second.in_use);
  leave(id, MemoryTier::kDisk);
  return {};
}

const MemoryRecord* LoRAMemoryManager::find(AdapterId id) const {
  const auto found = records_.find(id);
  return found == records_.end() ? nullptr : &found->second;
}

MemoryAmount LoRAMemoryManager::pinnable(MemoryTier tier) const {
  const auto [bytes, adapters] = budget(tier);
  const int64_t free_adapters = adapters / kUnpinnedShare + (adapters % kUnpinnedShare == 0 ? 0 : 1);
  return {bytes - bytes / kUnpinnedShare, adapters - free_adapters};
}

}  // namespace choral::lora
