// Work on memory that goes along with a product that computes. A core that multiplies leaves most of its memory's bandwidth
// unused, so the product asks for the companion's bytes between its own multiplications, where that costs nothing, and lets it
// work on them a moment later, when they have come into the cache. A product need not: whoever gives it a companion does what
// is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace choral::kernels {

class Companion {
 public:
  virtual ~Companion() = default;

  // Of all threads, not fetched yet. Asked before the threads begin.
  virtual int64_t bytes_left() const = 0;
  // The bytes that come next in `thread`'s part of the work, at most `most`; the caller asks memory for them. Empty: no more.
  // Each thread of the pool calls for itself, with its own number.
  virtual std::span<const std::byte> fetch(int thread, int64_t most) = 0;
  // Works on what had been fetched when this was called before.
  virtual void work(int thread) = 0;
};

}  // namespace choral::kernels
