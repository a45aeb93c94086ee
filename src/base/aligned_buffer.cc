#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <limits>

namespace choral {
namespace {
constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;
}  // namespace

void AlignedBuffer::Unmap::operator()(std::byte* p) const { ::munmap(p, mapped_bytes); }

Result<AlignedBuffer> AlignedBuffer::allocate(size_t size_bytes) {
  if (size_bytes == 0) return AlignedBuffer();
  if (size_bytes > std::numeric_limits<size_t>::max() / 2) return too_large("cannot allocate {} bytes", size_bytes);
  const size_t mapped = (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* p = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    return resource_exhausted("cannot allocate {} MiB: the system has no memory left for it", size_bytes >> 20);
  }
  if (mapped >= kHugePageBytes) ::madvise(p, mapped, MADV_HUGEPAGE);  // advice only; failing costs speed, not correctness
  return AlignedBuffer(static_cast<std::byte*>(p), size_bytes, mapped);
}

}  // namespace choral
