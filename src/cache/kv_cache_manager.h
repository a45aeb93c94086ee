// Block pool and prefix index as one: gives sequences their blocks, lets them share computed prefixes, takes blocks back.
// Rules: only full, computed blocks are shared, and nobody writes into them again (who would must compute the block anew in one
// of its own: nothing is ever copied); a block is findable from publish() until its
// memory is given to somebody else; blocks of a released sequence are evicted last block first. Called by the scheduler.
// Nothing allocates after the constructor. Not thread-safe.
#pragma once

#include <cstdint>

#include "cache/block_pool.h"
#include "cache/block_table.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"

namespace choral::cache {

// A prefix found in the index. `free_blocks` of its `blocks` have no holder: taking them uses up free blocks.
struct PrefixMatch {
  int32_t blocks = 0;
  int32_t free_blocks = 0;
};

struct PrefixStats {
  int64_t queries = 0;       // sequences that asked for the first time
  int64_t query_tokens = 0;  // their tokens
  int64_t hit_tokens = 0;    // tokens of them that needed no computing
  int64_t evicted_blocks = 0;
};

class KVCacheManager {
 public:
  KVCacheManager(int32_t block_count, int32_t block_tokens, bool enable_prefix_caching);

  int32_t block_count() const { return pool_.block_count(); }
  int32_t block_tokens() const { return pool_.block_tokens(); }
  int32_t free_blocks() const { return pool_.free_count(); }  // cached content without a holder counts as free
  int32_t cached_blocks() const { return index_.size(); }
  int32_t ref_count(BlockId block) const { return pool_.ref_count(block); }
  bool prefix_caching() const { return enable_prefix_caching_; }
  const PrefixStats& stats() const { return stats_; }
  int32_t blocks_for(int64_t token_count) const;

  PrefixHasher& hasher() { return hasher_; }

  // The longest computed prefix of a sequence of token_count tokens. Never all of it: the last token is always computed, since
  // its logits are wanted.
  PrefixMatch find_prefix(const PrefixChain& chain, int32_t token_count) const;

  // Puts the found blocks into the (empty) table with a reference each. `match` is what find_prefix() just gave.
  void adopt_prefix(const PrefixChain& chain, PrefixMatch match, BlockTable& table);
  // Statistics of a sequence's first admission.
  void count_query(int32_t token_count, int32_t hit_tokens);

  // Extends the table to cover token_count tokens. All or nothing: false when there are too few free blocks.
  [[nodiscard]] bool grow(BlockTable& table, int64_t token_count);

  // Takes back what lies behind the first token_count tokens, in the middle of a block too, so that others can be written there.
  // Says how many tokens the table still holds: a cut through a block that others have or may find gives up that block.
  [[nodiscard]] int64_t truncate(BlockTable& table, int64_t token_count);

  // Puts the blocks that the first token_count tokens of `table` fill, all computed, into the (empty) table `fork` with a
  // reference each. Says how many tokens those are; the fork computes the ones after them itself, to the same bits.
  [[nodiscard]] int64_t fork(const BlockTable& table, int64_t token_count, BlockTable& fork);

  // Blocks [first, end) of the table are computed: from now on others may share them.
  void publish(const PrefixChain& chain, const BlockTable& table, int32_t first, int32_t end);

  // Drops the table's references and empties it.
  void release(BlockTable& table);

  // Nothing cached is found any more; blocks in use stay with their holders.
  void clear_prefixes() { index_.clear(); }

 private:
  void give_back(BlockTable& table, int32_t first);

  bool enable_prefix_caching_;
  BlockPool pool_;
  PrefixIndex index_;
  PrefixHasher hasher_;
  PrefixStats stats_;
};

}  // namespace choral::cache
