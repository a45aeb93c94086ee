// Which block holds the content named by a key. Open addressing over a table of twice the blocks, made by the constructor;
// a block has at most one key and a key at most one block (the first one stays). Removal shifts entries back, so there are no
// tombstones and probes stay short for ever. Whole keys are compared, never only hashes of them. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_pool.h"
#include "cache/prefix_key.h"

namespace choral::cache {

class PrefixIndex {
 public:
  explicit PrefixIndex(int32_t block_count);

  // The block with this content, or kNoBlock.
  BlockId find(const PrefixKey& key) const;

  // Makes a fully computed block findable. False, and nothing changes, when the key already has a block. The block must not
  // have a key yet.
  bool insert(const PrefixKey& key, BlockId block);
  // The block's content goes. True when it was findable.
  bool erase(BlockId block);

  bool contains(BlockId block) const { return slot_of_block_[block] >= 0; }
  int32_t size() const { return size_; }

 private:
  int32_t home(const PrefixKey& key) const;
  int32_t next(int32_t slot) const { return (slot + 1) & mask_; }

  int32_t mask_;
  int32_t size_ = 0;
  std::vector<BlockId> slots_;  // kNoBlock = empty
  std::vector<int32_t> slot_of_block_;
  std::vector<PrefixKey> key_of_block_;
};

}  // namespace choral::cache
