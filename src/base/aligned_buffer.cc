#include "base/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

#include "base/checked_math.h"
#include "base/free_memory.h"
#include "base/size_text.h"

namespace choral {
namespace {
constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

void AlignedBuffer::Unmap::operator()(std::byte* p) const { ::munmap(p, mapped_bytes); }

void AlignedBuffer::touch() {
  volatile std::byte* const bytes = data_.get();
  for (size_t at = 0; at < size_bytes_; at += page_bytes()) bytes[at] = std::byte{0};
}

Result<AlignedBuffer> AlignedBuffer::allocate(size_t size_bytes) {
  if (size_bytes == 0) return AlignedBuffer();
  if (size_bytes > std::numeric_limits<size_t>::max() / 2) return too_large("cannot allocate {} bytes", size_bytes);
  const size_t mapped = round_up(size_bytes, page_bytes());
  // Only whole, aligned huge pages can be had, so a large buffer begins with one: more is mapped and what stands over given back.
  const size_t slack = mapped >= kHugePageBytes ? kHugePageBytes : 0;
  void* p = ::mmap(nullptr, mapped + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    return resource_exhausted("cannot allocate {}: {}", size_text(static_cast<int64_t>(size_bytes)), memory_refusal_text());
  }
  auto* begin = static_cast<std::byte*>(p);
  if (slack > 0) {
    const size_t over = (kHugePageBytes - reinterpret_cast<uintptr_t>(begin) % kHugePageBytes) % kHugePageBytes;
    if (over > 0) ::munmap(begin, over);
    begin += over;
    if (slack > over) ::munmap(begin + mapped, slack - over);
    ::madvise(begin, mapped, MADV_HUGEPAGE);  // advice only; failing costs speed, not correctness
  }
  return AlignedBuffer(begin, size_bytes, mapped);
}

}  // namespace choral
