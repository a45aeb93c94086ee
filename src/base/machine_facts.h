// What this machine is, read from /proc and /sys: for doctor's lines and the head of bench's report. Values, read anew at each
// call.
#pragma once

#include <string>

#include "base/cpu_share.h"
#include "base/free_memory.h"
#include "base/system_files.h"

namespace choral {

struct MachineFacts {
  std::string cpu_model;
  CpuTopology topology;  // of the CPUs that this process may run on
  CpuShare cpu;
  bool smt = false;  // two threads share a core
  FreeMemory memory;
  std::string huge_pages;     // "always", "madvise", "never"; empty = unknown
  std::string nvidia_driver;  // its version; empty: there is none
};

MachineFacts machine_facts(const SystemFiles& files, const std::vector<int>& cpus, const ProcessLimits& limits);
inline MachineFacts machine_facts() { return machine_facts(SystemFiles(), allowed_cpus(), ProcessLimits::of_this_process()); }

}  // namespace choral
