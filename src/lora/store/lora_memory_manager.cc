#include "lora/store/lora_memory_manager.h"

#include <algorithm>
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
    : budgets_{budgets.disk_bytes, budgets.host_bytes, budgets.device_bytes} {
  for (const int64_t budget : budgets_) CHORAL_CHECK(budget >= 0, "a memory budget is negative");
}

MemoryAnswer LoRAMemoryManager::plan(std::span<const AdapterId> keep, int64_t more_bytes, MemoryTier tier) const {
  int64_t missing = more_bytes - free_bytes(tier);
  if (missing <= 0) return {};
  if (more_bytes > budget_bytes(tier)) return {MemoryRoom::kTooLarge, {}};
  struct Candidate {
    uint64_t last_use;
    AdapterId id;
  };
  std::vector<Candidate> candidates;
  for (const auto& [id, record] : records_) {
    if (!record.on(tier) || !may_leave(record, tier)) continue;
    if (std::find(keep.begin(), keep.end(), id) == keep.end()) candidates.push_back({record.last_use, id});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.last_use < b.last_use; });
  MemoryAnswer answer{MemoryRoom::kFitsAfterEviction, {}};
  for (const Candidate& candidate : candidates) {
    const MemoryRecord& record = records_.at(candidate.id);
    const int64_t bytes = record.bytes[index(tier)];
    if (bytes == 0) continue;  // its leaving would help nobody
    const bool forgotten = tier == MemoryTier::kDisk || (tier == MemoryTier::kHost && !record.on(MemoryTier::kDisk));
    answer.evictions.push_back({candidate.id, tier, forgotten});
    missing -= bytes;
    if (missing <= 0) return answer;
  }
  return {MemoryRoom::kNoRoom, {}};
}

MemoryAnswer LoRAMemoryManager::ask(AdapterId id, int64_t bytes, MemoryTier tier) const {
  CHORAL_CHECK(bytes >= 0, "an adapter has a negative number of bytes");
  const MemoryRecord* record = find(id);
  CHORAL_CHECK(tier != MemoryTier::kDevice || (record != nullptr && record->on(MemoryTier::kHost)),
               "an adapter comes to the device from the host");
  if (bytes > budget_bytes(tier)) return {MemoryRoom::kTooLarge, {}};
  const int64_t present = record != nullptr && record->on(tier) ? record->bytes[index(tier)] : 0;
  const bool pinned = record != nullptr && record->pinned && *record->pinned >= tier;
  if (pinned && pinned_bytes(tier) - present + bytes > pinnable_bytes(tier)) return {MemoryRoom::kNoRoom, {}};
  return plan({&id, 1}, bytes - present, tier);
}

MemoryAnswer LoRAMemoryManager::reserve(AdapterId id, int64_t bytes, MemoryTier tier) {
  MemoryAnswer answer = ask(id, bytes, tier);
  if (!answer.ok()) return answer;
  apply(answer);
  MemoryRecord& record = records_[id];
  int64_t& present = record.bytes[index(tier)];
  if (present < 0) {
    ++record.loads;
    present = 0;
  }
  used_[index(tier)] += bytes - present;
  present = bytes;
  record.last_use = ++clock_;
  return answer;
}

MemoryAnswer LoRAMemoryManager::allocate_adapter(AdapterId id, int64_t bytes) {
  const MemoryRecord* record = find(id);
  const bool newcomer = record == nullptr || !record->on(MemoryTier::kHost);
  if (newcomer && !reserve(id, 0, MemoryTier::kHost).ok()) return {MemoryRoom::kNoRoom, {}};
  MemoryAnswer answer = reserve(id, bytes, MemoryTier::kDevice);
  if (newcomer && !answer.ok()) leave(id, MemoryTier::kHost);
  return answer;
}

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

MemoryAnswer LoRAMemoryManager::make_room(int64_t bytes, MemoryTier tier, std::span<const AdapterId> keep) {
  CHORAL_CHECK(bytes >= 0, "a negative number of bytes is to be freed");
  MemoryAnswer answer = plan(keep, bytes, tier);
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
  for (const MemoryTier t : kTiers) {
    // Off the host is off the device; the disk is left alone by those above it.
    if (t < tier || !record.on(t)) continue;
    used_[index(t)] -= record.bytes[index(t)];
    record.bytes[index(t)] = -1;
  }
  const bool forgotten = std::none_of(std::begin(kTiers), std::end(kTiers), [&](MemoryTier t) { return record.on(t); });
  if (forgotten) records_.erase(found);
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
  ++record.in_use;
  ++record.uses;
  record.last_use = ++clock_;
}

void LoRAMemoryManager::release(AdapterId id) {
  MemoryRecord& record = known(id);
  CHORAL_CHECK(record.in_use > 0, "an adapter is released more often than acquired");
  --record.in_use;
  record.last_use = ++clock_;
}

void LoRAMemoryManager::touch(AdapterId id) { known(id).last_use = ++clock_; }

Status LoRAMemoryManager::pin(AdapterId id, MemoryTier tier) {
  const auto found = records_.find(id);
  if (found == records_.end()) return not_found("adapter {} is not known to the memory manager", id.value());
  MemoryRecord& record = found->second;
  if (!record.on(tier)) {
    return unavailable("adapter {} is not in {} memory and cannot be pinned there; load it first", id.value(), tier_name(tier));
  }
  for (const MemoryTier t : kTiers) {
    if (t > tier || !record.on(t)) continue;
    const int64_t budget = budget_bytes(t), own = record.bytes[index(t)];
    const int64_t others = pinned_bytes(t) - (record.pinned && *record.pinned >= t ? own : 0);
    const int64_t most = pinnable_bytes(t);
    if (others + own > most) {
      return resource_exhausted(
          "pinning adapter {} ({} bytes) would pin {} of {} bytes of {} memory, at most {} may be; unpin another or raise the "
          "budget",
          id.value(), own, others + own, budget, tier_name(t), most);
    }
  }
  record.pinned = tier;
  return {};
}

void LoRAMemoryManager::unpin(AdapterId id) { known(id).pinned.reset(); }

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

int64_t LoRAMemoryManager::pinned_bytes(MemoryTier tier) const {
  int64_t total = 0;
  for (const auto& [id, record] : records_) {
    if (record.pinned && *record.pinned >= tier && record.on(tier)) total += record.bytes[index(tier)];
  }
  return total;
}

}  // namespace choral::lora
