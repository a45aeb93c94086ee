// The places for what layers keep of a sequence besides keys and values: numbers, never their bytes. A running sequence holds one
// for its state; others hold what the state was behind a prefix, and are found by the name of its last block (prefix_key.h). A
// place without a holder is free, one that has a name is given away last, the one longest unused first. Called by the scheduler.
// Nothing allocates after the constructor. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cache/block_pool.h"
#include "cache/prefix_index.h"

namespace choral::cache {

inline constexpr int32_t kNoSlot = kNoBlock;

class StateSlots {
 public:
  explicit StateSlots(int32_t count) : count_(count), pool_(std::max(count, 1), 1), names_(std::max(count, 1)) {}

  bool wanted() const { return count_ > 0; }  // the model has such layers
  int32_t free_count() const { return pool_.free_count(); }
  bool has_nameless() const { return pool_.free_count() > 0 && !names_.contains(pool_.next_free()); }  // is free
  int32_t named() const { return names_.size(); }

  // One more holder of a place that is free, whose content goes. Needs free_count() > 0.
  int32_t take() {
    const int32_t slot = pool_.take();
    names_.erase(slot);
    return slot;
  }
  // The place that keeps the state behind this block; kNoSlot: none does.
  int32_t find(const PrefixKey& key) const { return names_.find(key); }
  bool is_held(int32_t slot) const { return pool_.ref_count(slot) > 0; }
  void hold(int32_t slot) { pool_.ref(slot); }
  // One holder less.
  void give_back(int32_t slot) { pool_.unref(slot, names_.contains(slot)); }
  // Its content is the state behind this block, from now on and for others. False: another place is called so already.
  bool name(const PrefixKey& key, int32_t slot) { return names_.insert(key, slot); }

 private:
  int32_t count_;
  BlockPool pool_;
  PrefixIndex names_;
};

}  // namespace choral::cache
