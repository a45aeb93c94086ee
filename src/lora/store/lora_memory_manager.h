// The book of one memory that adapters come to and leave: the host's, of packed adapters, or a device's, of slots. It counts
// bytes and adapters against a budget, and says who leaves when another comes: the one unused for longest. An adapter that is in
// use or pinned stays. The caller moves the bytes, and drops what the answers list. No call goes through all known adapters, nor
// through all in use or pinned. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "lora/adapter_ids.h"

namespace choral::lora {

// Bytes, and how many adapters have them. What has room has room for both.
struct MemoryAmount {
  int64_t bytes = 0;
  int64_t adapters = 0;
  bool within(const MemoryAmount& limit) const { return bytes <= limit.bytes && adapters <= limit.adapters; }
};
inline constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max();  // of adapters: only their bytes are limited

enum class MemoryRoom : uint8_t {
  kFits,
  kFitsAfterEviction,
  kNoRoom,    // what stands in the way is in use or pinned: it may change
  kTooLarge,  // more than the whole budget
};

struct MemoryAnswer {
  MemoryRoom room = MemoryRoom::kFits;
  std::vector<AdapterId> evictions;  // in order of leaving; empty unless kFitsAfterEviction
  bool ok() const { return room == MemoryRoom::kFits || room == MemoryRoom::kFitsAfterEviction; }
};

// Who keeps an adapter in use.
enum class MemoryUse : uint8_t {
  kLoad,     // its room is being filled
  kClaim,    // requests wait with it
  kRequest,  // a request runs with it
};
inline constexpr size_t kMemoryUses = 3;

struct MemoryRecord {
  int64_t size_bytes = 0;
  bool has_room = false;  // in this memory, filled or not
  bool pinned = false;
  std::array<int32_t, kMemoryUses> uses{};
  uint64_t last_use = 0;                      // in ticks of this manager: a greater number is later
  bool is_idle = false;                       // in the manager's list of those
  std::list<AdapterId>::iterator place = {};  // in that list or the other

  int32_t used_by(MemoryUse use) const { return uses[static_cast<size_t>(use)]; }
  bool may_leave() const { return has_room && !pinned && uses == std::array<int32_t, kMemoryUses>{}; }
  bool loading() const { return used_by(MemoryUse::kLoad) > 0; }
  bool resident() const { return has_room && !loading(); }
};

class LoRAMemoryManager {
 public:
  // Of the budget so much, rounded up for adapters, stays free of pins: 1/4, so that pins alone can never shut out everybody
  // else.
  static constexpr int64_t kUnpinnedShare = 4;

  explicit LoRAMemoryManager(const MemoryAmount& budget);

  // Known from now on, without room here.
  void add_adapter(AdapterId id, int64_t size_bytes);
  // Forgets it, pin included. It is not in use.
  void remove_adapter(AdapterId id);

  // Whether one that has no room here can come.
  MemoryRoom room_for(AdapterId id) const { return plan({at(id).size_bytes, 1}).room; }
  // It comes, with this size from now on. When ok(), the listed ones have left, and it is the one used last. Call it before the
  // load to be sure of the room.
  MemoryAnswer allocate_adapter(AdapterId id, int64_t size_bytes);
  // The one that is unused for longest leaves; none: nobody can.
  std::optional<AdapterId> evict_to_cpu();
  // Frees so much for nobody in particular, and none of `keep` leaves for it; the listed ones have left when ok().
  MemoryAnswer make_room(const MemoryAmount& amount, std::span<const AdapterId> keep = {});
  // It leaves, as the caller wishes. It is neither in use nor pinned.
  void drop(AdapterId id);

  // From the first acquire() to the last release() it is in use. Each makes it the one used last.
  void acquire(AdapterId id, MemoryUse use);
  void release(AdapterId id, MemoryUse use);

  // False: more than pinnable() would be pinned.
  bool pin(AdapterId id);
  void unpin(AdapterId id);

  bool knows(AdapterId id) const { return records_.contains(id); }
  const MemoryRecord& at(AdapterId id) const { return records_.at(id); }
  size_t count() const { return records_.size(); }
  const MemoryAmount& budget() const { return budget_; }
  const MemoryAmount& used() const { return used_; }
  const MemoryAmount& pinned() const { return pinned_; }
  MemoryAmount pinnable() const;
  int64_t evictions() const { return evictions_; }

 private:
  MemoryAnswer plan(const MemoryAmount& more, std::span<const AdapterId> keep = {}) const;
  void leave(MemoryRecord& record);
  void put_into_list(MemoryRecord& record);

  MemoryAmount budget_, used_, pinned_;
  std::unordered_map<AdapterId, MemoryRecord> records_;
  std::list<AdapterId> idle_;  // those that may leave, unused longest first
  std::list<AdapterId> rest_;  // the others
  uint64_t clock_ = 0;
  int64_t evictions_ = 0;
};

}  // namespace choral::lora
