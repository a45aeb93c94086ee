// Budgets, use and age of adapters on three tiers of memory. It keeps books over ids and byte counts; the caller moves the bytes,
// and drops what the answers list. Tiers: device (a plug-in's memory; budget 0 = there is none) ⊆ host (packed, ready to compute
// with); disk (files that can be read again). An adapter on the device is on the host too, so leaving the device copies nothing
// back.
// Eviction steps down: device → host → disk → unknown. The one unused for longest leaves first. An adapter in use never leaves,
// nor a pinned one from its tier and those below it. What reserve() lists leaves at once: call it after the load, or before it to
// be sure of the room. On the host no call goes through all known adapters, nor through all in use or pinned. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "lora/adapter_ids.h"

namespace choral::lora {

enum class MemoryTier : uint8_t { kDisk, kHost, kDevice };
inline constexpr size_t kMemoryTiers = 3;

// Of a tier: bytes, and how many adapters have them. What has room has room for both.
struct MemoryAmount {
  int64_t bytes = 0;
  int64_t adapters = 0;
  bool within(const MemoryAmount& limit) const { return bytes <= limit.bytes && adapters <= limit.adapters; }
};
inline constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max();  // of adapters: only their bytes are limited

struct MemoryBudgets {
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;
  int64_t host_adapters = kAnyNumber;
  int64_t disk_bytes = std::numeric_limits<int64_t>::max();  // files that nobody but us keeps, as a download cache
};

struct MemoryEviction {
  AdapterId id;
  MemoryTier from = MemoryTier::kHost;
  bool forgotten = false;  // it is on no tier any more
  bool operator==(const MemoryEviction&) const = default;
};

enum class MemoryRoom : uint8_t {
  kFits,
  kFitsAfterEviction,
  kNoRoom,    // what stands in the way is in use or pinned: it may change
  kTooLarge,  // more than the whole budget
};

struct MemoryAnswer {
  MemoryRoom room = MemoryRoom::kFits;
  std::vector<MemoryEviction> evictions;  // in order of leaving; empty unless kFitsAfterEviction
  bool ok() const { return room == MemoryRoom::kFits || room == MemoryRoom::kFitsAfterEviction; }
};

struct MemoryRecord {
  std::array<int64_t, kMemoryTiers> bytes{-1, -1, -1};  // by tier; -1 = not there
  std::optional<MemoryTier> pinned;                     // on this tier and below
  int32_t in_use = 0;
  uint64_t last_use = 0;                      // in ticks of this manager: a greater number is later
  int64_t uses = 0;                           // acquire() calls
  int64_t loads = 0;                          // times it came to a tier
  int64_t evictions = 0;                      // times it left one for another's sake
  bool is_idle = false;                       // in the manager's list of those
  std::list<AdapterId>::iterator place = {};  // in that list or the other

  bool on(MemoryTier tier) const { return bytes[static_cast<size_t>(tier)] >= 0; }
};

class LoRAMemoryManager {
 public:
  // Of each tier's budget so much, rounded up for adapters, stays free of pins: 1/4, so that pins alone can never shut out
  // everybody else.
  static constexpr int64_t kUnpinnedShare = 4;

  explicit LoRAMemoryManager(const MemoryBudgets& budgets);

  // Whether `bytes` of adapter `id` can come to `tier`, and who must leave for it. Changes nothing. An adapter that is there
  // already counts with what it needs more, also among the pinned. For the device it must be on the host. bytes >= 0.
  MemoryAnswer ask(AdapterId id, int64_t bytes, MemoryTier tier = MemoryTier::kHost) const;
  // The same and, when ok(), done: the listed ones have left, `id` is there and is the one used last.
  MemoryAnswer reserve(AdapterId id, int64_t bytes, MemoryTier tier = MemoryTier::kHost);
  // An adapter of the host's comes to the device, with `bytes` there: reserve() on that tier.
  MemoryAnswer allocate_adapter(AdapterId id, int64_t bytes);
  // The one on the device that is unused for longest, and neither in use nor pinned there, leaves it, for a slot; none: nobody
  // can.
  std::optional<AdapterId> evict_to_cpu();
  // Frees so much of the tier for nobody in particular, and none of `keep` leaves for it; the listed ones have left when ok().
  MemoryAnswer make_room(const MemoryAmount& amount, MemoryTier tier = MemoryTier::kHost, std::span<const AdapterId> keep = {});

  // In use: from the first acquire() to the last release(); each makes it the one used last. acquire() needs it on the host.
  void acquire(AdapterId id);
  void release(AdapterId id);

  // Keeps it on `tier` and below. not_found; unavailable when it is not there; resource_exhausted when more than the pinnable
  // share of a budget would be pinned. A second pin moves the first.
  Status pin(AdapterId id, MemoryTier tier = MemoryTier::kHost);
  void unpin(AdapterId id);

  // Leaves `tier` (from the host: the device too), as the caller wishes. unavailable when in use or pinned there.
  Status drop(AdapterId id, MemoryTier tier);
  // Forgets it, pins included. unavailable when in use.
  Status remove(AdapterId id);

  const MemoryRecord* find(AdapterId id) const;  // null: unknown
  size_t count() const { return records_.size(); }
  const MemoryAmount& budget(MemoryTier tier) const { return budgets_[static_cast<size_t>(tier)]; }
  const MemoryAmount& used(MemoryTier tier) const { return used_[static_cast<size_t>(tier)]; }
  const MemoryAmount& pinned(MemoryTier tier) const { return pinned_[static_cast<size_t>(tier)]; }
  MemoryAmount pinnable(MemoryTier tier) const;
  int64_t budget_bytes(MemoryTier tier) const { return budget(tier).bytes; }
  int64_t used_bytes(MemoryTier tier) const { return used(tier).bytes; }
  int64_t free_bytes(MemoryTier tier) const { return budget_bytes(tier) - used_bytes(tier); }
  int64_t pinned_bytes(MemoryTier tier) const { return pinned(tier).bytes; }
  int64_t pinnable_bytes(MemoryTier tier) const { return pinnable(tier).bytes; }
  int64_t evictions() const { return evictions_; }

 private:
  MemoryAnswer plan(std::span<const AdapterId> keep, const MemoryAmount& more, MemoryTier tier) const;
  void apply(const MemoryAnswer& answer);
  bool may_leave(const MemoryRecord& record, MemoryTier tier) const;
  std::vector<AdapterId> by_use(MemoryTier tier) const;  // those on it, unused longest first
  bool leave(AdapterId id, MemoryTier tier);             // true when it is forgotten
  MemoryRecord& known(AdapterId id);
  // Changes the record by `change`, and what is counted of it.
  template <class Change>
  void change(MemoryRecord& record, Change change);
  void count_pin(const MemoryRecord& record, int sign);
  void put_into_list(MemoryRecord& record);

  std::array<MemoryAmount, kMemoryTiers> budgets_;
  std::array<MemoryAmount, kMemoryTiers> used_{};
  std::array<MemoryAmount, kMemoryTiers> pinned_{};
  std::unordered_map<AdapterId, MemoryRecord> records_;
  std::list<AdapterId> idle_;  // those that may leave the host, unused longest first
  std::list<AdapterId> rest_;  // the others
  uint64_t clock_ = 0;
  int64_t evictions_ = 0;
};

}  // namespace choral::lora
