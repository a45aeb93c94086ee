// Where the threads of a pool stand: one seat a thread, the caller's first. Values.
#pragma once

#include <vector>

namespace choral {

struct CpuTopology;

struct ThreadSeat {
  int domain = 0;         // threads of one domain share a cache: they help each other before they help others
  std::vector<int> cpus;  // the CPUs it may run on; empty = wherever the process may

  bool operator==(const ThreadSeat&) const = default;
};

struct ThreadPlan {
  std::vector<ThreadSeat> seats;  // those of one domain stand together

  static ThreadPlan anywhere(int threads) { return {std::vector<ThreadSeat>(threads > 1 ? threads : 1)}; }
  // With several L3 caches and a thread for each core (the slower kind aside, if there are no threads for it), each thread stays
  // at its cache: what it wrote it finds there, and memory that it touched first is its node's. Fewer threads stand anywhere:
  // only the system knows which CPUs others leave free.
  static ThreadPlan on(const CpuTopology& topology, int threads);
  // The `part`-th of so many parts of neighbouring seats, for pools that work beside each other: of as many as there are nodes
  // each has one. There are as many seats as parts, or more.
  ThreadPlan part(int part, int parts) const;
};

}  // namespace choral
