// Memory kept back for the time when there is no more. Reporting a shortage takes memory, and so does a change that must be
// finished once it is begun. It belongs to one thread and serves that thread's allocations while a Use lives: an allocation that
// finds no memory gets the spare and, when that is used up, waits until other threads have freed some. Work that may be given up
// as a whole asks with or_out_of_memory() and gets an error instead.
#pragma once

#include <memory>
#include <string_view>
#include <type_traits>

#include "base/out_of_memory.h"

namespace choral::engine {

class SpareMemory {
 public:
  // Stands behind the calling thread's allocations, in place of the one that did; null: nobody does, and they may fail.
  class Use {
   public:
    explicit Use(SpareMemory* spare);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    SpareMemory* before_;
    SpareMemory* aside_before_;
  };
  // What stands behind the calling thread's allocations, or did before or_out_of_memory() set it aside: for what must be made
  // whole in the midst of what may be given up. Null: nothing.
  static SpareMemory* of_thread();

  // Takes it (again). False: there is none to be had now.
  bool keep();
  // Whether there is some memory all the same, for a small change that may go on without the spare.
  static bool is_any_left();
  // For std::new_handler: the memory, or time.
  void relieve();

 private:
  std::unique_ptr<char[]> held_;
};

// As choral::or_out_of_memory(). Its error, which takes memory itself, has the thread's spare again.
template <class Work>
std::invoke_result_t<Work> or_out_of_memory(std::string_view doing, Work&& work) {
  return choral::or_out_of_memory(doing, [&] {
    const SpareMemory::Use nobody(nullptr);
    return work();
  });
}

}  // namespace choral::engine
