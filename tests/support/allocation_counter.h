// Counts heap allocations of all threads between start() and stop(): the proof of invariant 8 (no allocation in a steady-state
// step). Linking choral_allocation_counter replaces every global operator new and delete of the program; malloc called directly
// is not seen. One count at a time; start and stop may be called from any thread. Counting itself allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace choral::testing {

struct AllocationCount {
  int64_t allocations = 0;  // calls of any operator new
  int64_t frees = 0;        // calls of any operator delete with a pointer
  int64_t bytes = 0;        // asked for, in all
  size_t largest_bytes = 0;
};

void start_counting_allocations();  // from zero
AllocationCount stop_counting_allocations();

// While set, the first counted allocation of any thread aborts, so that a debugger or core file shows who asked.
void abort_on_allocation(bool enabled);

// From now on, on all threads but the caller's, operator new of `least_bytes` or more finds no memory; 0: it does again.
void fail_allocations_of_others(size_t least_bytes);
// The same until somebody frees a piece of `relief_bytes` or more; from then on only pieces that large are not found.
void fail_allocations_of_others_until(size_t least_bytes, size_t relief_bytes);

// The nth operator new from now on (1: the next) finds no memory, once; of all threads, or of all but the caller's.
void fail_nth_allocation(int64_t nth);
void fail_nth_allocation_of_others(int64_t nth);
// No more; whether it came to that.
bool stop_failing_nth_allocation();

// Counts during one call.
template <class F>
AllocationCount count_allocations(F&& f) {
  start_counting_allocations();
  f();
  return stop_counting_allocations();
}

}  // namespace choral::testing
