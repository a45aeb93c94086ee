// A sequence's KV blocks in order of position: position p lies in block ids()[p / block_tokens]. Capacity is reserved once, when
// the request is accepted, so that growing during decode allocates nothing. Who keeps a copy is told by unchanged() from where on
// it is out of date. Holds ids only; references are KVCacheManager's business.
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
  // Keeps the first `size`.
  void truncate(int32_t size) {
    CHORAL_CHECK(size >= 0 && size <= this->size(), "a block table is cut inside");
    ids_.resize(size);
    unchanged_ = std::min(unchanged_, size);
  }
  void clear() { truncate(0); }

  // So many leading ids are what they were at the last mark_read().
  int32_t unchanged() const { return unchanged_; }
  void mark_read() { unchanged_ = size(); }

 private:
  std::vector<BlockId> ids_;
  int32_t unchanged_ = 0;
};

}  // namespace choral::cache
