// Block pool and prefix index as one: gives sequences their blocks, lets them share computed prefixes, takes blocks back.
// Rules: only full, computed blocks are shared, and nobody writes into them again (who would must compute the block anew in one
// of its own: nothing is ever copied); a block is findable from publish() until its
// memory is given to somebody else; blocks of a released sequence are evicted last block first. A sequence has a block table for
// each group of layers (kv_groups.h); of a group with a window it holds what its next tokens see and no more, and a prefix is
// found when each group has what the token behind it sees. Called by the scheduler. Nothing allocates after the constructor. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "cache/block_pool.h"
#include "cache/block_table.h"
#include "cache/kv_groups.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"

namespace choral::cache {

// A prefix found in the index, of so many blocks of positions. `free_blocks` of those that its sequence will hold, in all groups,
// have no holder: taking them uses up free blocks.
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

// Hears of blocks that publish() made findable and that are found no more, since their memory goes to another sequence.
class EvictionListener {
 public:
  virtual ~EvictionListener() = default;
  virtual void evicted(BlockId block) noexcept = 0;
};

class KVCacheManager {
 public:
  // A step computes at most step_tokens of one sequence. `listener` (may be null) outlives this.
  KVCacheManager(const KvPoolShape& pool, int32_t step_tokens, bool enable_prefix_caching, EvictionListener* listener = nullptr);

  int32_t block_count() const { return pool_.block_count(); }
  int32_t block_tokens() const { return pool_.block_tokens(); }
  int32_t groups() const { return shape_.groups(); }
  int32_t free_blocks() const { return pool_.free_count(); }  // cached content without a holder counts as free
  int32_t cached_blocks() const { return index_.size(); }
  int32_t ref_count(BlockId block) const { return pool_.ref_count(block); }
  bool prefix_caching() const { return enable_prefix_caching_; }
  const PrefixStats& stats() const { return stats_; }
  // Blocks of positions that so many tokens fill.
  int32_t blocks_for(int64_t token_count) const;
  // The most that a sequence of so many tokens holds at a time, in all groups.
  int64_t most_blocks(int64_t token_count) const { return shape_.most_blocks(token_count, step_tokens_); }
  // The same of one that was forked from another behind so many tokens, without those that it has in common with that one.
  int64_t most_blocks_of_fork(int64_t token_count, int64_t shared_tokens) const;
  // The first block of positions that is seen when `computed` tokens are and the next is computed.
  int32_t first_seen(int32_t group, int64_t computed) const;

  PrefixHasher& hasher() { return hasher_; }

  // The longest computed prefix of a sequence of token_count tokens. Never all of it: the last token is always computed, since
  // its logits are wanted.
  PrefixMatch find_prefix(const PrefixChain& chain, int32_t token_count) const;

  // Free blocks that a sequence of token_count tokens uses up when it begins with `match`: those found and those for its next
  // step.
  int64_t blocks_to_begin(PrefixMatch match, int64_t token_count) const;

  // `tables` below are a sequence's, one of each group.

  // Puts the found blocks into the (empty) tables with a reference each. `match` is what find_prefix() just gave.
  void adopt_prefix(const PrefixChain& chain, PrefixMatch match, std::span<BlockTable> tables);
  // Statistics of a sequence's first admission.
  void count_query(int32_t token_count, int32_t hit_tokens);

  // Gives back what a sequence that has computed so many tokens sees no more, and extends its tables: where all positions are
  // seen to cover token_count tokens, where a window is as far as the next step may go. All or nothing: false when there are too
  // few free blocks.
  [[nodiscard]] bool grow(std::span<BlockTable> tables, int64_t computed, int64_t token_count);
  // The tables are what grow() makes them.
  bool covers(std::span<const BlockTable> tables, int64_t computed, int64_t token_count) const;

  // Takes back what lies behind the first token_count tokens, in the middle of a block too, so that others can be written there.
  // Says how many tokens the tables still hold: a cut through a block that others have or may find gives up that block, and one
  // to where a window would need what was given back gives up all. A cut to what was computed at the last grow() or later never
  // does, as long as nobody shares the block it goes through.
  [[nodiscard]] int64_t truncate(std::span<BlockTable> tables, int64_t token_count);

  // Puts the blocks that the first token_count tokens of `tables` fill, all computed, into the (empty) tables `fork` with a
  // reference each, as far as windows still have what a token behind them sees. Says how many tokens those are; the fork computes
  // the ones after them itself, to the same bits.
  [[nodiscard]] int64_t fork(std::span<const BlockTable> tables, int64_t token_count, std::span<BlockTable> fork);

  // Blocks [first, end) of positions are computed: from now on others may share them. `found_from_now_on` is called for each
  // that no other block stood for yet.
  using OnPublished = FunctionRef<void(int32_t group, int32_t position, BlockId block)>;
  void publish(const PrefixChain& chain, std::span<const BlockTable> tables, int32_t first, int32_t end,
               OnPublished found_from_now_on);
  void publish(const PrefixChain& chain, std::span<const BlockTable> tables, int32_t first, int32_t end) {
    publish(chain, tables, first, end, [](int32_t, int32_t, BlockId) {});
  }

  // Drops the tables' references and empties them.
  void release(std::span<BlockTable> tables);

 private:
  template <class Has>
  int32_t usable_prefix(int32_t most, Has has) const;
  BlockId find(const PrefixChain& chain, int32_t group, int32_t block) const;
  int32_t end_for(int32_t group, int64_t computed, int64_t token_count) const;
  void give_back(BlockId block) { pool_.unref(block, index_.contains(block)); }
  void cut(std::span<BlockTable> tables, int32_t size);

  KvPoolShape shape_;
  int32_t step_tokens_;
  bool enable_prefix_caching_;
  EvictionListener* listener_;
  BlockPool pool_;
  PrefixIndex index_;
  PrefixHasher hasher_;
  PrefixStats stats_;
};

}  // namespace choral::cache
