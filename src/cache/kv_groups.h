// Layers that keep the same positions: all of them, or those within a window. Layers of one kind form groups of equal size, and a
// block, of whichever group, is a place in as many arrays as a group has layers: so blocks of all groups come from one pool, and
// what a window gives back serves whoever needs it. A layer whose place is half of another's shares it with one like itself. A
// model whose layers are all alike has one group. Values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_pool_size.h"

namespace choral::cache {

// The blocks that there are, and how they are given out.
struct KvPoolShape {
  int32_t blocks = 0;
  int32_t block_tokens = 0;
  std::vector<int32_t> windows = {0};  // of each group: positions that a token sees, its own included; 0: all before it
  // Where layers keep a state of a sequence beside or instead of keys: how many places there are for such. 0: no layer does.
  int32_t state_slots = 0;

  int32_t groups() const { return static_cast<int32_t>(windows.size()); }
  // The most that a sequence of so many tokens, of which a step computes at most step_tokens, holds at a time in all groups.
  int64_t most_blocks(int64_t token_count, int64_t step_tokens) const;
};

struct KvGroups {
  struct Place {
    int32_t group = 0;
    int32_t array = 0;
    int32_t part = 0;  // of the group's place in this array
  };
  std::vector<Place> layers;          // where each layer's blocks are
  std::vector<KVTokenLayout> arrays;  // what a block has a place in
  std::vector<int32_t> windows;       // as KvPoolShape has them
  std::vector<int32_t> parts;         // of each group: how many of its layers have a block's place in one array side by side
};

// At most kMostGroups, with as little as possible left unused by groups that are not full. Layers of unequal shapes share arrays
// where keys and values of the larger ones take a whole number of times as much. Else all are one group, which sees what the
// farthest of them sees.
inline constexpr int32_t kMostGroups = 8;
KvGroups group_layers(std::span<const KVTokenLayout> layers);

}  // namespace choral::cache
