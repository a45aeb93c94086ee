// A machine that nobody has: files of /proc and /sys as a test lays them out. Tests only.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

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

}  // namespace choral
