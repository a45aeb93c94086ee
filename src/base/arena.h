// Scratch memory of one step: pointers are bumped, everything is freed at once by reset(), the blocks are kept.
// Grows while warming up (`grown()` counts it); a steady-state step allocates nothing. The memory may be a device's: the arena
// itself never touches it. Not thread-safe: one arena per engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"

namespace choral {

class Arena {
 public:
  struct Block {
    std::shared_ptr<void> owner;
    std::byte* data = nullptr;  // 64-byte aligned
    size_t size_bytes = 0;
  };
  using Source = std::function<Result<Block>(size_t size_bytes)>;

  Arena();  // host memory
  explicit Arena(Source source) : source_(std::move(source)) {}

  // 64-byte aligned, contents undefined; lives until the reset() of an enclosing Mark or of the arena. Like operator new it
  // throws std::bad_alloc when there is no memory (base/out_of_memory.h): then nothing was made.
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
  Source source_;
  std::vector<Block> blocks_;
  size_t block_ = 0;  // index of the block in use
  size_t used_ = 0;   // bytes used of it
  int64_t grown_ = 0;
};

}  // namespace choral
