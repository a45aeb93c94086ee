#include "cache/block_pool.h"

#include "base/check.h"

namespace choral::cache {

BlockPool::BlockPool(int32_t block_count, int32_t block_tokens)
    : block_count_(block_count), block_tokens_(block_tokens), free_count_(block_count) {
  CHORAL_CHECK(block_count > 0 && block_tokens > 0, "a block pool needs at least one block of at least one token");
  const size_t nodes = static_cast<size_t>(block_count) + 1;
  refs_.assign(nodes - 1, 0);
  prev_.resize(nodes);
  next_.resize(nodes);
  for (int32_t node = 0; node <= block_count; ++node) {
    prev_[node] = node == 0 ? block_count : node - 1;
    next_[node] = node == block_count ? 0 : node + 1;
  }
}

BlockId BlockPool::take() {
  CHORAL_CHECK(free_count_ > 0, "no free KV block; ask free_count() first");
  const BlockId block = next_[block_count_];
  unlink(block);
  refs_[block] = 1;
  return block;
}

void BlockPool::ref(BlockId block) {
  if (refs_[checked(block)]++ == 0) unlink(block);
}

void BlockPool::unref(BlockId block, bool has_content) {
  int32_t& refs = refs_[checked(block)];
  CHORAL_CHECK(refs > 0, "a free KV block was released again");
  if (--refs > 0) return;
  link_before(block, has_content ? block_count_ : next_[block_count_]);
}

size_t BlockPool::checked(BlockId block) const {
  CHORAL_CHECK(block >= 0 && block < block_count_, "KV block id out of range");
  return static_cast<size_t>(block);
}

void BlockPool::link_before(int32_t node, int32_t next) {
  const int32_t prev = prev_[next];
  prev_[node] = prev;
  next_[node] = next;
  next_[prev] = node;
  prev_[next] = node;
  ++free_count_;
}

void BlockPool::unlink(int32_t node) {
  const int32_t prev = prev_[node];
  const int32_t next = next_[node];
  next_[prev] = next;
  prev_[next] = prev;
  --free_count_;
}

}  // namespace choral::cache
