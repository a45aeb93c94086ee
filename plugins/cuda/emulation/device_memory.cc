#include "device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cuda_emulation {
namespace {

constexpr uint64_t kAlignment = 256;  // as of cudaMalloc
constexpr uint64_t kNoiseBytes = 64 << 10;

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

void protect(unsigned char* base, int access) {
  if (mprotect(base, DeviceMemory::kReservedBytes, access) == 0) return;
  std::perror("emulated device memory: mprotect");
  std::abort();
}

}  // namespace

unsigned char* DeviceMemory::base() {
  if (base_ != nullptr) return base_;
  void* reserved = mmap(nullptr, kReservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    std::perror("emulated device memory: mmap");
    std::abort();
  }
  return base_ = static_cast<unsigned char*>(reserved);
}

void* DeviceMemory::take(uint64_t bytes, uint64_t limit) {
  const uint64_t size = round_up(std::max<uint64_t>(bytes, 1), kAlignment);
  if (size > limit || used_ > limit - size) return nullptr;
  uint64_t begin = 0;
  for (const auto& [first, end] : blocks_) {
    if (first >= begin + size) break;
    begin = end + kAlignment;  // a gap, so that an overrun is seen
  }
  if (begin + size > kReservedBytes) return nullptr;
  if (used_ == 0) most_used_ = 0;
  blocks_.emplace(begin, begin + size);
  used_ += size;
  most_used_ = std::max(most_used_, used_);
  fill_with_noise(begin, size);
  return base() + begin;
}

void DeviceMemory::fill_with_noise(uint64_t begin, uint64_t size) {
  unsigned char* memory = base() + begin;
  const Window window(*this);
  std::memset(memory, 0xA5, std::min(size, kNoiseBytes));
  std::memset(memory + size - std::min<uint64_t>(size, kAlignment), 0xA5, std::min<uint64_t>(size, kAlignment));
}

bool DeviceMemory::give(const void* memory) {
  const auto block = blocks_.find(static_cast<const unsigned char*>(memory) - base());
  if (block == blocks_.end()) return false;
  fill_with_noise(block->first, block->second - block->first);
  used_ -= block->second - block->first;
  blocks_.erase(block);
  return true;
}

bool DeviceMemory::is_device(const void* memory) const {
  const auto* at = static_cast<const unsigned char*>(memory);
  return base_ != nullptr && at >= base_ && at < base_ + kReservedBytes;
}

bool DeviceMemory::holds(const void* memory, uint64_t bytes) const {
  if (!is_device(memory)) return false;
  const uint64_t offset = static_cast<const unsigned char*>(memory) - base_;
  auto block = blocks_.upper_bound(offset);
  if (block == blocks_.begin()) return false;
  --block;
  return offset < block->second && bytes <= block->second - offset;
}

// Whole pages are given back to the system, which hands them out as zeros.
void DeviceMemory::zero(void* memory, uint64_t bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  auto* begin = static_cast<unsigned char*>(memory);
  auto* end = begin + bytes;
  auto* first = reinterpret_cast<unsigned char*>(round_up(reinterpret_cast<uint64_t>(begin), page));
  auto* last = reinterpret_cast<unsigned char*>(reinterpret_cast<uint64_t>(end) / page * page);
  if (first >= last || madvise(first, static_cast<size_t>(last - first), MADV_DONTNEED) != 0) {
    std::memset(begin, 0, bytes);
    return;
  }
  std::memset(begin, 0, static_cast<size_t>(first - begin));
  std::memset(last, 0, static_cast<size_t>(end - last));
}

DeviceMemory::Window::Window(DeviceMemory& memory) : memory_(memory) {
  if (memory_.windows_++ == 0) protect(memory_.base(), PROT_READ | PROT_WRITE);
}

DeviceMemory::Window::~Window() {
  if (--memory_.windows_ == 0) protect(memory_.base(), PROT_NONE);
}

}  // namespace cuda_emulation
