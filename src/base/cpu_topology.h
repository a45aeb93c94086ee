// How the CPUs that a process may run on stand to each other: which of them are one core, which cores share an L3 cache, a NUMA
// node and a socket, and which are the slow ones of a hybrid processor. Where the kernel says nothing sensible a CPU is a core
// of its own, and a cache is as large as what holds it. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/system_files.h"

namespace choral {

struct CpuPlace {
  int cpu = 0;
  // Names that are equal where two CPUs share it, of no other meaning: those of caches are those of their first CPUs.
  int core = 0, cache = 0, node = 0, socket = 0;
  bool efficient = false;  // of fewer instructions a second than others of these CPUs

  bool operator==(const CpuPlace&) const = default;
};

struct CpuTopology {
  std::vector<CpuPlace> cpus;  // ascending

  int sockets() const { return distinct(&CpuPlace::socket); }
  int nodes() const { return distinct(&CpuPlace::node); }
  int caches() const { return distinct(&CpuPlace::cache); }
  int cores() const { return distinct(&CpuPlace::core); }
  int efficient_cores() const;
  // "2 sockets, 4 NUMA nodes, 16 L3 caches".
  std::string text() const;

 private:
  int distinct(int CpuPlace::*name) const;
};

CpuTopology cpu_topology(const SystemFiles& files, const std::vector<int>& cpus);

}  // namespace choral
