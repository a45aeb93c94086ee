// The KV cache's blocks as numbers: who holds how many references, and in which order free blocks are given out.
// A block is block_tokens() consecutive positions of one sequence, in every layer; the tensors live in the engine.
// Free blocks form one list: blocks without reusable content first, then blocks whose content the prefix index still knows,
// least recently released first. So taking a block evicts cached content only when nothing else is left, oldest first.
// Intrusive list over arrays made by the constructor: nothing allocates afterwards, every operation is O(1).
// Not thread-safe: the engine thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace choral::cache {

using BlockId = int32_t;
inline constexpr BlockId kNoBlock = -1;

class BlockPool {
 public:
  BlockPool(int32_t block_count, int32_t block_tokens);

  int32_t block_count() const { return block_count_; }
  int32_t block_tokens() const { return block_tokens_; }
  int32_t free_count() const { return free_count_; }
  int32_t ref_count(BlockId block) const { return refs_[checked(block)]; }

  // The first block of the free list. Needs free_count() > 0.
  BlockId next_free() const { return next_[block_count_]; }
  // Takes it with one reference. Its old content is void: the caller
  // removes it from the prefix index.
  BlockId take();

  // One more holder. A free block leaves the free list: its content is in use again.
  void ref(BlockId block);

  // One holder less. The last one puts the block on the free list: at the far end when `has_content` (findable by its
  // prefix key), else at the near end.
  void unref(BlockId block, bool has_content);

 private:
  size_t checked(BlockId block) const;
  void link_before(int32_t node, int32_t next);
  void unlink(int32_t node);

  int32_t block_count_;
  int32_t block_tokens_;
  int32_t free_count_;
  std::vector<int32_t> refs_;
  std::vector<int32_t> prev_, next_;  // circular; node block_count_ is the list's head
};

}  // namespace choral::cache
