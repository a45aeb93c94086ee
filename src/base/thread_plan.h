// Where the threads of a pool stand: one seat a thread, the caller's first. Values.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral {

struct CpuTopology;

// Whether threads stay at caches, and so at NUMA nodes.
enum class Seating {
  kWhereAllAre,  // with a thread for each core; fewer threads stand anywhere, since only the system knows which CPUs others use
  kAnywhere,
  kSpread,  // fewer threads too, as many at each cache as its cores are a part of all
};
// --numa: auto, off, distribute.
Result<Seating> parse_numa(std::string_view name);

struct ThreadSeat {
  int domain = 0;         // threads of one domain share a cache: they help each other before they help others
  std::vector<int> cpus;  // the CPUs it may run on; empty = wherever the process may

  bool operator==(const ThreadSeat&) const = default;
};

struct ThreadPlan {
  std::vector<ThreadSeat> seats;  // those of one domain stand together

  static ThreadPlan anywhere(int threads) { return {std::vector<ThreadSeat>(threads > 1 ? threads : 1)}; }
  // With several L3 caches each thread stays at one, where the seating has it so: what it wrote it finds there, and memory that
  // it touched first is its node's. The slower kind of cores has threads if there are some for all cores.
  static ThreadPlan on(const CpuTopology& topology, int threads, Seating seating = Seating::kWhereAllAre);
  // The `part`-th of so many parts of neighbouring seats, for pools that work beside each other: of as many as there are nodes
  // each has one. There are as many seats as parts, or more.
  ThreadPlan part(int part, int parts) const;
};

}  // namespace choral
