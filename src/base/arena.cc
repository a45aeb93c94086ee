#include "base/arena.h"

#include <algorithm>
#include <new>

namespace choral {
namespace {
constexpr size_t kFirstBlockBytes = size_t{1} << 20;

Result<Arena::Block> host_block(size_t size_bytes) {
  CHORAL_TRY(auto buffer, AlignedBuffer::allocate(size_bytes));
  auto owner = std::make_shared<AlignedBuffer>(std::move(buffer));
  std::byte* data = owner->data();
  return Arena::Block{std::move(owner), data, size_bytes};
}

}  // namespace

Arena::Arena() : Arena(host_block) {}

void* Arena::allocate(size_t size_bytes) {
  size_bytes = (size_bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  while (block_ < blocks_.size()) {
    if (used_ + size_bytes <= blocks_[block_].size_bytes) {
      std::byte* p = blocks_[block_].data + used_;
      used_ += size_bytes;
      return p;
    }
    ++block_;
    used_ = 0;
  }
  auto block = source_(std::max({size_bytes, kFirstBlockBytes, capacity_bytes()}));
  if (!block.ok()) block = source_(size_bytes);
  if (!block.ok()) throw std::bad_alloc();
  blocks_.push_back(std::move(*block));
  ++grown_;
  used_ = size_bytes;
  return blocks_.back().data;
}

void Arena::reset() {
  block_ = 0;
  used_ = 0;
}

size_t Arena::capacity_bytes() const {
  size_t total = 0;
  for (const auto& block : blocks_) total += block.size_bytes;
  return total;
}

}  // namespace choral
