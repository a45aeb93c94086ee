// How much memory this process may still take: the defaults of caches and budgets are shares of it. The machine's memory bounds
// it, so do the control groups around the process and its own limits of addresses and data, and the least that any of them leaves
// is what there is. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/system_files.h"

namespace choral {

struct MemoryLimit {
  std::string name;         // "RLIMIT_AS (ulimit -v)"; empty: the machine's own memory
  std::string cure;         // what to do where it leaves too little
  int64_t total_bytes = 0;  // of the machine, swap included
  int64_t free_bytes = 0;
};

// Of setrlimit(2); -1: none.
struct ProcessLimits {
  int64_t address_bytes = -1, data_bytes = -1;
  static ProcessLimits of_this_process();
};

// All that hold for this process, the machine first.
std::vector<MemoryLimit> memory_limits(const SystemFiles& files, const ProcessLimits& process);

struct FreeMemory {
  MemoryLimit machine;
  MemoryLimit least_free, least_total;  // by what they leave, and by what they allow in all
};

FreeMemory free_memory(const SystemFiles& files, const ProcessLimits& process);
inline FreeMemory free_memory() { return free_memory(SystemFiles(), ProcessLimits::of_this_process()); }

// Why the system just refused memory, as far as can be told: it does so by the process's limits, where the machine's and those of
// groups end processes. Asks for no memory but its own text's.
std::string memory_refusal_text();

}  // namespace choral
