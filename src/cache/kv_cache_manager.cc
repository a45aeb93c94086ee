#include "cache/kv_cache_manager.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"

namespace choral::cache {

KVCacheManager::KVCacheManager(const KvPoolShape& pool, int32_t step_tokens, bool enable_prefix_caching,
                               EvictionListener* listener)
    : shape_(pool),
      step_tokens_(step_tokens),
      enable_prefix_caching_(enable_prefix_caching),
      listener_(listener),
      pool_(pool.blocks, pool.block_tokens),
      index_(pool.blocks) {
  CHORAL_CHECK(groups() > 0 && groups() <= kMostGroups, "a KV pool serves at least one group of layers");
}

int32_t KVCacheManager::blocks_for(int64_t token_count) const {
  return static_cast<int32_t>(ceil_div(token_count, pool_.block_tokens()));
}

// Where a window is seen, what another still has of it is not sure.
int64_t KVCacheManager::most_blocks_of_fork(int64_t token_count, int64_t shared_tokens) const {
  const bool all_is_seen = std::all_of(shape_.windows.begin(), shape_.windows.end(), [](int32_t window) { return window == 0; });
  return most_blocks(token_count) - (all_is_seen ? groups() * (shared_tokens / block_tokens()) : 0);
}

int32_t KVCacheManager::first_seen(int32_t group, int64_t computed) const {
  const int64_t window = shape_.windows[group];
  if (window == 0) return 0;
  return static_cast<int32_t>(std::max<int64_t>(computed - window + 1, 0) / pool_.block_tokens());
}

// Blocks of positions that the group's table has when so many tokens are computed and a step comes.
int32_t KVCacheManager::end_for(int32_t group, int64_t computed, int64_t token_count) const {
  return blocks_for(shape_.windows[group] == 0 ? token_count : std::min(token_count, computed + step_tokens_));
}

BlockId KVCacheManager::find(const PrefixChain& chain, int32_t group, int32_t block) const {
  return index_.find(key_in_group(chain[block], group));
}

// The most blocks, up to `most`, of which has(group, block) gives each group those that a token behind them sees.
template <class Has>
int32_t KVCacheManager::usable_prefix(int32_t most, Has has) const {
  for (int32_t group = 0; group < groups(); ++group) {
    if (shape_.windows[group] > 0) continue;
    int32_t found = 0;
    while (found < most && has(group, found)) ++found;
    most = found;
  }
  // A block that is missing hides every prefix whose window it is in: the next one to try ends before it.
  for (int32_t group = 0; group < groups();) {
    const int32_t first = shape_.windows[group] == 0 ? most : first_seen(group, int64_t{most} * block_tokens());
    int32_t begin = most;
    while (begin > first && has(group, begin - 1)) --begin;
    if (begin > first) most = begin - 1;
    group = begin > first ? 0 : group + 1;
  }
  return most;
}

PrefixMatch KVCacheManager::find_prefix(const PrefixChain& chain, int32_t token_count) const {
  PrefixMatch match;
  if (!enable_prefix_caching_ || token_count <= 0) return match;
  match.blocks = usable_prefix(std::min(chain.size(), (token_count - 1) / pool_.block_tokens()),
                               [&](int32_t group, int32_t block) { return find(chain, group, block) != kNoBlock; });
  for (int32_t group = 0; group < groups(); ++group) {
    for (int32_t i = first_seen(group, int64_t{match.blocks} * block_tokens()); i < match.blocks; ++i) {
      if (pool_.ref_count(find(chain, group, i)) == 0) ++match.free_blocks;
    }
  }
  return match;
}

int64_t KVCacheManager::blocks_to_begin(PrefixMatch match, int64_t token_count) const {
  int64_t blocks = match.free_blocks;
  const int64_t computed = int64_t{match.blocks} * block_tokens();
  for (int32_t group = 0; group < groups(); ++group) blocks += end_for(group, computed, token_count) - match.blocks;
  return blocks;
}

void KVCacheManager::adopt_prefix(const PrefixChain& chain, PrefixMatch match, std::span<BlockTable> tables) {
  for (int32_t group = 0; group < groups(); ++group) {
    BlockTable& table = tables[group];
    CHORAL_CHECK(table.empty(), "a prefix is adopted by an empty block table only");
    table.begin_at(first_seen(group, int64_t{match.blocks} * block_tokens()));
    while (table.size() < match.blocks) {
      const BlockId block = find(chain, group, table.size());
      CHORAL_CHECK(block != kNoBlock, "a cached prefix vanished between find_prefix() and adopt_prefix()");
      pool_.ref(block);
      table.push(block);
    }
  }
}

void KVCacheManager::count_query(int32_t token_count, int32_t hit_tokens) {
  ++stats_.queries;
  stats_.query_tokens += token_count;
  stats_.hit_tokens += hit_tokens;
}

bool KVCacheManager::grow(std::span<BlockTable> tables, int64_t computed, int64_t token_count) {
  int64_t missing = 0;
  for (int32_t group = 0; group < groups(); ++group) {
    BlockTable& table = tables[group];
    const int32_t first = std::min(first_seen(group, computed), table.size());
    for (int32_t i = table.begin(); i < first; ++i) give_back(table[i]);
    if (first > table.begin()) table.begin_at(first);
    missing += std::max(0, end_for(group, computed, token_count) - table.size());
  }
  if (missing > pool_.free_count()) return false;
  for (int32_t group = 0; group < groups(); ++group) {
    for (const int32_t end = end_for(group, computed, token_count); tables[group].size() < end;) {
      const BlockId block = pool_.take();
      if (index_.erase(block)) {
        ++stats_.evicted_blocks;
        if (listener_ != nullptr) listener_->evicted(block);
      }
      tables[group].push(block);
    }
  }
  return true;
}

bool KVCacheManager::covers(std::span<const BlockTable> tables, int64_t computed, int64_t token_count) const {
  for (int32_t group = 0; group < groups(); ++group) {
    if (tables[group].size() < end_for(group, computed, token_count)) return false;
  }
  return true;
}

int64_t KVCacheManager::truncate(std::span<BlockTable> tables, int64_t token_count) {
  CHORAL_CHECK(token_count >= 0, "a sequence has no fewer than 0 tokens");
  int64_t held = token_count;
  for (const BlockTable& table : tables) held = std::min(held, int64_t{table.size()} * block_tokens());
  const auto whole = static_cast<int32_t>(held / block_tokens());
  const auto is_shared = [&](const BlockTable& table) {
    return whole >= table.begin() && (pool_.ref_count(table[whole]) > 1 || index_.contains(table[whole]));
  };
  if (held > int64_t{whole} * block_tokens() && std::any_of(tables.begin(), tables.end(), is_shared)) {
    held = int64_t{whole} * block_tokens();
  }
  for (int32_t group = 0; group < groups(); ++group) {
    if (first_seen(group, held) < tables[group].begin()) held = 0;
  }
  cut(tables, blocks_for(held));
  return held;
}

int64_t KVCacheManager::fork(std::span<const BlockTable> tables, int64_t token_count, std::span<BlockTable> fork) {
  const auto full = static_cast<int32_t>(token_count / block_tokens());
  for (const BlockTable& table : tables) CHORAL_CHECK(full <= table.size(), "a fork begins inside what is computed");
  const int32_t shared = usable_prefix(full, [&](int32_t group, int32_t i) { return i >= tables[group].begin(); });
  for (int32_t group = 0; group < groups(); ++group) {
    CHORAL_CHECK(fork[group].empty(), "an empty block table becomes a fork only");
    fork[group].begin_at(first_seen(group, int64_t{shared} * block_tokens()));
    for (int32_t i = fork[group].size(); i < shared; ++i) {
      pool_.ref(tables[group][i]);
      fork[group].push(tables[group][i]);
    }
  }
  return int64_t{shared} * block_tokens();
}

void KVCacheManager::publish(const PrefixChain& chain, std::span<const BlockTable> tables, int32_t first, int32_t end,
                             OnPublished found_from_now_on) {
  if (!enable_prefix_caching_) return;
  for (int32_t group = 0; group < groups(); ++group) {
    const BlockTable& table = tables[group];
    CHORAL_CHECK(end <= chain.size() && end <= table.size(), "published blocks need a key and a place");
    for (int32_t i = std::max(first, table.begin()); i < end; ++i) {
      if (index_.insert(key_in_group(chain[i], group), table[i])) found_from_now_on(group, i, table[i]);
    }
  }
}

void KVCacheManager::release(std::span<BlockTable> tables) { cut(tables, 0); }

// Keeps the first `size` blocks of positions.
void KVCacheManager::cut(std::span<BlockTable> tables, int32_t size) {
  int32_t longest = 0;
  for (const BlockTable& table : tables) longest = std::max(longest, table.size());
  // Last block first: it reaches the old end of the free list first and is evicted before the blocks that lead to it.
  for (int32_t i = longest; i-- > size;) {
    for (const BlockTable& table : tables) {
      if (i >= table.begin() && i < table.size()) give_back(table[i]);
    }
  }
  for (BlockTable& table : tables) table.truncate(std::min(size, table.size()));
}

}  // namespace choral::cache
