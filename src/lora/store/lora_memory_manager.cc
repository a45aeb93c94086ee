#include "lora/store/lora_memory_manager.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace choral::lora {
namespace {

void add(MemoryAmount& amount, const MemoryRecord& record, int sign = 1) {
  amount.bytes += sign * record.size_bytes;
  amount.adapters += sign;
}

}  // namespace

LoRAMemoryManager::LoRAMemoryManager(const MemoryAmount& budget) : budget_(budget) {
  CHORAL_CHECK(MemoryAmount{}.within(budget), "a memory budget is negative");
}

void LoRAMemoryManager::add_adapter(AdapterId id, int64_t size_bytes) {
  CHORAL_CHECK(size_bytes >= 0, "an adapter has a negative number of bytes");
  const auto [record, is_new] = records_.try_emplace(id, MemoryRecord{.size_bytes = size_bytes});
  CHORAL_CHECK(is_new, "an adapter is added twice");
  record->second.place = rest_.insert(rest_.end(), id);
}

void LoRAMemoryManager::remove_adapter(AdapterId id) {
  unpin(id);
  MemoryRecord& record = records_.at(id);
  if (record.has_room) drop(id);
  rest_.erase(record.place);
  records_.erase(id);
}

MemoryAnswer LoRAMemoryManager::plan(const MemoryAmount& more, std::span<const AdapterId> keep) const {
  MemoryAmount missing{more.bytes - (budget_.bytes - used_.bytes), more.adapters - (budget_.adapters - used_.adapters)};
  if (missing.within({})) return {};
  if (!more.within(budget_)) return {MemoryRoom::kTooLarge, {}};
  MemoryAnswer answer{MemoryRoom::kFitsAfterEviction, {}};
  for (const AdapterId id : idle_) {
    if (std::find(keep.begin(), keep.end(), id) != keep.end()) continue;
    const MemoryRecord& record = at(id);
    if (record.size_bytes == 0 && missing.adapters <= 0) continue;  // its leaving would help nobody
    answer.evictions.push_back(id);
    add(missing, record, -1);
    if (missing.within({})) return answer;
  }
  return {MemoryRoom::kNoRoom, {}};
}

MemoryAnswer LoRAMemoryManager::make_room(const MemoryAmount& amount, std::span<const AdapterId> keep) {
  CHORAL_CHECK(MemoryAmount{}.within(amount), "a negative amount of memory is to be freed");
  MemoryAnswer answer = plan(amount, keep);
  for (const AdapterId id : answer.evictions) {
    ++evictions_;
    drop(id);
  }
  return answer;
}

MemoryAnswer LoRAMemoryManager::allocate_adapter(AdapterId id, int64_t size_bytes) {
  MemoryRecord& record = records_.at(id);
  CHORAL_CHECK(!record.has_room, "an adapter gets room that has some");
  MemoryAnswer answer = make_room({size_bytes, 1});
  if (!answer.ok()) return answer;
  record.size_bytes = size_bytes;
  record.has_room = true;
  record.last_use = ++clock_;
  add(used_, record);
  put_into_list(record);
  return answer;
}

std::optional<AdapterId> LoRAMemoryManager::evict_to_cpu() {
  if (idle_.empty()) return std::nullopt;
  const AdapterId id = idle_.front();
  ++evictions_;
  drop(id);
  return id;
}

void LoRAMemoryManager::drop(AdapterId id) {
  MemoryRecord& record = records_.at(id);
  CHORAL_CHECK(record.may_leave(), "an adapter is dropped that is pinned, in use or not there");
  add(used_, record, -1);
  record.has_room = false;
  put_into_list(record);
}

// Mostly it was used just now; only one that was unpinned may have its place further in front.
void LoRAMemoryManager::put_into_list(MemoryRecord& record) {
  rest_.splice(rest_.end(), record.is_idle ? idle_ : rest_, record.place);
  record.is_idle = record.may_leave();
  if (!record.is_idle) return;
  auto behind = idle_.end();
  while (behind != idle_.begin() && at(*std::prev(behind)).last_use > record.last_use) --behind;
  idle_.splice(behind, rest_, record.place);
}

void LoRAMemoryManager::acquire(AdapterId id, MemoryUse use) {
  MemoryRecord& record = records_.at(id);
  CHORAL_CHECK(record.has_room, "an adapter is used that has no room");
  ++record.uses[static_cast<size_t>(use)];
  record.last_use = ++clock_;
  put_into_list(record);
}

void LoRAMemoryManager::release(AdapterId id, MemoryUse use) {
  MemoryRecord& record = records_.at(id);
  CHORAL_CHECK(record.used_by(use) > 0, "an adapter is released more often than acquired");
  --record.uses[static_cast<size_t>(use)];
  record.last_use = ++clock_;
  put_into_list(record);
}

bool LoRAMemoryManager::pin(AdapterId id) {
  MemoryRecord& record = records_.at(id);
  CHORAL_CHECK(record.has_room, "an adapter is pinned that has no room");
  if (record.pinned) return true;
  MemoryAmount with = pinned_;
  add(with, record);
  if (!with.within(pinnable())) return false;
  pinned_ = with;
  record.pinned = true;
  put_into_list(record);
  return true;
}

void LoRAMemoryManager::unpin(AdapterId id) {
  MemoryRecord& record = records_.at(id);
  if (!record.pinned) return;
  add(pinned_, record, -1);
  record.pinned = false;
  put_into_list(record);
}

MemoryAmount LoRAMemoryManager::pinnable() const {
  const auto [bytes, adapters] = budget_;
  const int64_t free_adapters = adapters / kUnpinnedShare + (adapters % kUnpinnedShare == 0 ? 0 : 1);
  return {bytes - bytes / kUnpinnedShare, adapters - free_adapters};
}

}  // namespace choral::lora
