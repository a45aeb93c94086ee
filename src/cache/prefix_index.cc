#include "cache/prefix_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace choral::cache {
namespace {
constexpr int32_t kNoSlot = -1;
}  // namespace

PrefixIndex::PrefixIndex(int32_t block_count) {
  CHORAL_CHECK(block_count > 0 && block_count <= (1 << 29), "block count out of range");
  const uint32_t slots = std::bit_ceil(static_cast<uint32_t>(block_count) * 2);
  mask_ = static_cast<int32_t>(slots - 1);
  slots_.assign(slots, kNoBlock);
  slot_of_block_.assign(block_count, kNoSlot);
  key_of_block_.resize(block_count);
}

int32_t PrefixIndex::home(const PrefixKey& key) const {
  uint32_t bits;  // a digest's bytes are as good as random
  std::memcpy(&bits, key.data(), sizeof bits);
  return static_cast<int32_t>(bits & static_cast<uint32_t>(mask_));
}

BlockId PrefixIndex::find(const PrefixKey& key) const {
  for (int32_t slot = home(key);; slot = next(slot)) {
    const BlockId block = slots_[slot];
    if (block == kNoBlock || key_of_block_[block] == key) return block;
  }
}

bool PrefixIndex::insert(const PrefixKey& key, BlockId block) {
  CHORAL_CHECK(!contains(block), "a KV block gets a second prefix key");
  int32_t slot = home(key);
  for (; slots_[slot] != kNoBlock; slot = next(slot)) {
    if (key_of_block_[slots_[slot]] == key) return false;
  }
  slots_[slot] = block;
  slot_of_block_[block] = slot;
  key_of_block_[block] = key;
  ++size_;
  return true;
}

bool PrefixIndex::erase(BlockId block) {
  int32_t hole = slot_of_block_[block];
  if (hole == kNoSlot) return false;
  slot_of_block_[block] = kNoSlot;
  --size_;
  // Entries behind the hole move into it when the hole lies on their way from home; otherwise find() would stop short of them.
  for (int32_t slot = next(hole);; slot = next(slot)) {
    const BlockId moved = slots_[slot];
    if (moved == kNoBlock) break;
    const int32_t from_home = (slot - home(key_of_block_[moved])) & mask_;
    const int32_t from_hole = (slot - hole) & mask_;
    if (from_home < from_hole) continue;
    slots_[hole] = moved;
    slot_of_block_[moved] = hole;
    hole = slot;
  }
  slots_[hole] = kNoBlock;
  return true;
}

}  // namespace choral::cache
