// A machine that nobody has: files of /proc and /sys as a test lays them out. Tests only.
#pragma once

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_topology.h"
#include "base/system_files.h"
#include "support/temp_dir.h"

namespace choral {

class FakeMachine {
 public:
  SystemFiles files() const { return SystemFiles(root_.path().string()); }
  void write(std::string_view file, std::string_view text) const { root_.write(file.substr(1), text); }

  // A core with these CPUs, as the kernel lists them: "0,4" or "0-1".
  void add_core(std::initializer_list<int> cpus, std::string_view list) const {
    for (const int cpu : cpus) {
      write(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu), fmt::format("{}\n", list));
    }
  }
  // The socket of a CPU and the CPUs that share its L3 cache.
  void add_place(int cpu, int socket, std::string_view cache) const {
    write(fmt::format("/sys/devices/system/cpu/cpu{}/topology/physical_package_id", cpu), fmt::format("{}\n", socket));
    write(fmt::format("/sys/devices/system/cpu/cpu{}/cache/index3/shared_cpu_list", cpu), fmt::format("{}\n", cache));
  }
  // `caches` L3 caches of four cores each on every socket, without SMT, and a socket's CPUs split over `nodes` NUMA nodes.
  void add_sockets(int sockets, int caches, int nodes) const {
    const int cpus = sockets * caches * 4, all_nodes = sockets * nodes;
    for (int cpu = 0; cpu < cpus; ++cpu) {
      add_core({cpu}, fmt::format("{}", cpu));
      add_place(cpu, cpu / (caches * 4), fmt::format("{}-{}", cpu / 4 * 4, cpu / 4 * 4 + 3));
    }
    write("/sys/devices/system/node/online", fmt::format("0-{}\n", all_nodes - 1));
    for (int node = 0; node < all_nodes; ++node) {
      write(fmt::format("/sys/devices/system/node/node{}/cpulist", node),
            fmt::format("{}-{}\n", node * cpus / all_nodes, (node + 1) * cpus / all_nodes - 1));
    }
  }
  void has_memory(int64_t total_kib, int64_t available_kib, int64_t swap_kib = 0) const {
    write("/proc/meminfo",
          fmt::format("MemTotal:       {} kB\nMemFree:        1 kB\nMemAvailable:   {} kB\nSwapTotal:      {} kB\n", total_kib,
                      available_kib, swap_kib));
  }
  // The process is in `group` of version 2, of which `root` and what is in it is mounted as a container has it.
  void has_cgroup2(std::string_view group, std::string_view root = "/") const {
    write("/proc/self/cgroup", fmt::format("0::{}\n", group));
    write("/proc/self/mountinfo", fmt::format("21 1 8:1 / / rw,relatime - ext4 /dev/root rw\n"
                                              "31 21 0:28 {} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
                                              root));
  }
  // The same of version 1, where every controller has a tree of its own.
  void has_cgroup1(std::string_view group, std::string_view root = "/") const {
    write("/proc/self/cgroup", fmt::format("9:name=systemd:/\n4:memory:{0}\n2:cpu,cpuacct:{0}\n0::/elsewhere\n", group));
    write("/proc/self/mountinfo", fmt::format("35 31 0:32 {0} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                                              "36 31 0:33 {0} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
                                              root));
  }

 private:
  testing::TempDir root_;
};

// [begin, end)
inline std::vector<int> cpu_range(int begin, int end) {
  std::vector<int> cpus(end - begin);
  std::iota(cpus.begin(), cpus.end(), begin);
  return cpus;
}

inline CpuTopology topology_of(const FakeMachine& machine, const std::vector<int>& cpus) {
  return cpu_topology(machine.files(), cpus);
}

}  // namespace choral
