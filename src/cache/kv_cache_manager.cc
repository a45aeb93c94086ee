#include "cache/kv_cache_manager.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"

namespace choral::cache {

KVCacheManager::KVCacheManager(int32_t block_count, int32_t block_tokens, bool enable_prefix_caching)
    : enable_prefix_caching_(enable_prefix_caching), pool_(block_count, block_tokens), index_(block_count) {}

int32_t KVCacheManager::blocks_for(int64_t token_count) const {
  return static_cast<int32_t>(ceil_div(token_count, pool_.block_tokens()));
}

PrefixMatch KVCacheManager::find_prefix(const PrefixChain& chain, int32_t token_count) const {
  PrefixMatch match;
  if (!enable_prefix_caching_ || token_count <= 0) return match;
  const int32_t most = std::min(chain.size(), (token_count - 1) / pool_.block_tokens());
  while (match.blocks < most) {
    const BlockId block = index_.find(chain[match.blocks]);
    if (block == kNoBlock) break;
    ++match.blocks;
    if (pool_.ref_count(block) == 0) ++match.free_blocks;
  }
  return match;
}

void KVCacheManager::adopt_prefix(const PrefixChain& chain, PrefixMatch match, BlockTable& table) {
  CHORAL_CHECK(table.empty(), "a prefix is adopted by an empty block table only");
  for (int32_t i = 0; i < match.blocks; ++i) {
    const BlockId block = index_.find(chain[i]);
    CHORAL_CHECK(block != kNoBlock, "a cached prefix vanished between find_prefix() and adopt_prefix()");
    pool_.ref(block);
    table.push(block);
  }
}

void KVCacheManager::count_query(int32_t token_count, int32_t hit_tokens) {
  ++stats_.queries;
  stats_.query_tokens += token_count;
  stats_.hit_tokens += hit_tokens;
}

bool KVCacheManager::grow(BlockTable& table, int64_t token_count) {
  const int32_t wanted = blocks_for(token_count);
  if (wanted - table.size() > pool_.free_count()) return false;
  while (table.size() < wanted) {
    const BlockId block = pool_.take();
    if (index_.erase(block)) ++stats_.evicted_blocks;
    table.push(block);
  }
  return true;
}

int64_t KVCacheManager::truncate(BlockTable& table, int64_t token_count) {
  CHORAL_CHECK(token_count >= 0, "a sequence has no fewer than 0 tokens");
  const int64_t block_tokens = pool_.block_tokens();
  int64_t held = std::min(token_count, table.size() * block_tokens);
  const auto whole = static_cast<int32_t>(held / block_tokens);
  const bool cuts_block = held % block_tokens != 0;
  if (cuts_block && (pool_.ref_count(table[whole]) > 1 || index_.contains(table[whole]))) held = whole * block_tokens;
  give_back(table, blocks_for(held));
  return held;
}

int64_t KVCacheManager::fork(const BlockTable& table, int64_t token_count, BlockTable& fork) {
  CHORAL_CHECK(fork.empty(), "an empty block table becomes a fork only");
  const auto full = static_cast<int32_t>(token_count / pool_.block_tokens());
  CHORAL_CHECK(full <= table.size(), "a fork begins inside what is computed");
  for (int32_t i = 0; i < full; ++i) {
    pool_.ref(table[i]);
    fork.push(table[i]);
  }
  return int64_t{full} * pool_.block_tokens();
}

void KVCacheManager::publish(const PrefixChain& chain, const BlockTable& table, int32_t first, int32_t end) {
  if (!enable_prefix_caching_) return;
  CHORAL_CHECK(end <= chain.size() && end <= table.size(), "published blocks need a key and a place");
  for (int32_t i = first; i < end; ++i) index_.insert(chain[i], table[i]);
}

void KVCacheManager::release(BlockTable& table) { give_back(table, 0); }

void KVCacheManager::give_back(BlockTable& table, int32_t first) {
  // Last block first: it reaches the old end of the free list first and is evicted before the blocks that lead to it.
  for (int32_t i = table.size(); i-- > first;) pool_.unref(table[i], index_.contains(table[i]));
  table.truncate(first);
}

}  // namespace choral::cache
