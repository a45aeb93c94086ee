// What this machine is, read from /proc and /sys: for doctor's lines and the head of bench's report. Values, read anew at each
// call.
#pragma once

#include <cstdint>
#include <string>

namespace choral::apps {

struct MachineFacts {
  std::string cpu_model;
  int cpus = 0;            // this process may run on
  int physical_cores = 0;  // of them
  bool smt = false;        // two threads share a core
  double cpu_quota = 0;    // CPUs' worth of time that the container grants; 0 = no limit
  int64_t memory_total = 0;
  int64_t memory_free = 0;  // that a new process can have, the container's limit included
  std::string huge_pages;   // "always", "madvise", "never"; empty = unknown
};

MachineFacts machine_facts();

}  // namespace choral::apps
