// Scratch memory of one step: pointers are bumped, everything is freed at once by reset(), the block is kept.
// Grows while warming up (`grown()` counts it); a steady-state step allocates nothing. Not thread-safe: one arena per engine
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"

namespace choral {

class Arena {
 public:
  // 64-byte aligned, contents undefined; lives until the reset() of an enclosing Mark or of the arena.
  template <class T>
  std::span<T> make(size_t count) {
    return {static_cast<T*>(allocate(count * sizeof(T))), count};
  }
  void* allocate(size_t size_bytes);

  void reset();
  size_t capacity_bytes() const;
  int64_t grown() const { return grown_; }

  // Gives back, at the end of its scope, what was made since it began.
  class Mark {
   public:
    explicit Mark(Arena& arena) : arena_(arena), block_(arena.block_), used_(arena.used_) {}
    ~Mark() {
      arena_.block_ = block_;
      arena_.used_ = used_;
    }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

   private:
    Arena& arena_;
    size_t block_, used_;
  };

 private:
  std::vector<AlignedBuffer> blocks_;
  size_t block_ = 0;  // index of the block in use
  size_t used_ = 0;   // bytes used of it
  int64_t grown_ = 0;
};

}  // namespace choral
