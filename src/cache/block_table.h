// A sequence's KV blocks of one group of layers, in order of position: position p lies in block ids()[p / block_tokens]. Capacity
// is reserved once, when the request is accepted, so that growing during decode allocates nothing. What lies before begin() was
// given back, since no later token sees it, and is not read. Who keeps a copy is told by unchanged() from where on it is out of
// date. Holds ids only; references are KVCacheManager's business.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "cache/block_pool.h"

namespace choral::cache {

class BlockTable {
 public:
  void reserve(int32_t capacity) { ids_.reserve(capacity); }

  int32_t size() const { return static_cast<int32_t>(ids_.size()); }
  bool empty() const { return ids_.empty(); }
  BlockId operator[](int32_t index) const { return ids_[index]; }
  std::span<const BlockId> ids() const { return ids_; }

  void push(BlockId block) {
    CHORAL_CHECK(ids_.size() < ids_.capacity(), "block table grows beyond what was reserved");
    ids_.push_back(block);
  }
  // The first that is held.
  int32_t begin() const { return begin_; }
  // Nothing is held before `first`, which may lie behind the end.
  void begin_at(int32_t first) {
    CHORAL_CHECK(first >= begin_, "what was given back does not come again");
    while (size() < first) push(kNoBlock);
    std::fill(ids_.begin() + begin_, ids_.begin() + first, kNoBlock);
    begin_ = first;
  }
  // Keeps the first `size`.
  void truncate(int32_t size) {
    CHORAL_CHECK(size >= 0 && size <= this->size(), "a block table is cut inside");
    ids_.resize(size);
    begin_ = std::min(begin_, size);
    unchanged_ = std::min(unchanged_, size);
  }
  void clear() { truncate(0); }

  // So many leading ids are what they were at the last mark_read().
  int32_t unchanged() const { return unchanged_; }
  void mark_read() { unchanged_ = size(); }

 private:
  std::vector<BlockId> ids_;
  int32_t begin_ = 0;
  int32_t unchanged_ = 0;
};

}  // namespace choral::cache
