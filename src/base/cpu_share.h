// How much of the machine's processors this process may use: the CPUs it may run on, the physical cores they belong to, and the
// share of time that control groups grant, which a program does not feel until it is stopped in the midst of a step. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/cpu_topology.h"
#include "base/system_files.h"

namespace choral {

struct CpuShare {
  int cpus = 0;
  int cores = 0;           // of these CPUs; SMT siblings are one
  int efficient = 0;       // cores of a hybrid processor's slower kind: a thread there is one that the others wait for
  double quota = 0;        // CPUs' worth of time; 0 = no limit
  std::string quota_name;  // where it stands: "cpu.max of cgroup /a"
  // A thread for each core that is none of the slower, as many as the quota keeps busy, at least one.
  int threads() const;
  // Why that is fewer than there are cores; empty when it is not.
  std::string reason() const;
};

// The CPUs that the calling thread may run on, ascending.
std::vector<int> allowed_cpus();
CpuShare cpu_share(const SystemFiles& files, const CpuTopology& topology);
inline CpuShare cpu_share() { return cpu_share(SystemFiles(), cpu_topology(SystemFiles(), allowed_cpus())); }

}  // namespace choral
