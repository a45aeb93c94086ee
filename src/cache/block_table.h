// A sequence's KV blocks in order of position: position p lies in block ids()[p / block_tokens]. Capacity is reserved once, when
// the request is accepted, so that growing during decode allocates nothing. Holds ids only; references are KVCacheManager's
// business.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "cache/block_pool.h"

namespace choral::cache {

class BlockTable {
 public:
  void reserve(int32_t capacity) { ids_.reserve(static_cast<size_t>(capacity)); }

  int32_t size() const { return static_cast<int32_t>(ids_.size()); }
  bool empty() const { return ids_.empty(); }
  BlockId operator[](int32_t index) const { return ids_[static_cast<size_t>(index)]; }
  std::span<const BlockId> ids() const { return ids_; }

  void push(BlockId block) {
    CHORAL_CHECK(ids_.size() < ids_.capacity(), "block table grows beyond what was reserved");
    ids_.push_back(block);
  }
  void clear() { ids_.clear(); }

 private:
  std::vector<BlockId> ids_;
};

}  // namespace choral::cache
