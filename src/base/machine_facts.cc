#include "base/machine_facts.h"

namespace choral {
namespace {

// The word in brackets: "always [madvise] never".
std::string chosen_of(const std::string& modes) {
  const size_t open = modes.find('['), close = modes.find(']', open == modes.npos ? 0 : open);
  return open == modes.npos || close == modes.npos ? "" : modes.substr(open + 1, close - open - 1);
}

}  // namespace

MachineFacts machine_facts(const SystemFiles& files, const std::vector<int>& cpus, const ProcessLimits& limits) {
  CpuTopology topology = cpu_topology(files, cpus);
  CpuShare cpu = cpu_share(files, topology);
  return {.cpu_model = files.value_of("/proc/cpuinfo", "model name"),
          .topology = std::move(topology),
          .cpu = std::move(cpu),
          .smt = files.number("/sys/devices/system/cpu/smt/active") == 1,
          .memory = free_memory(files, limits),
          .huge_pages = chosen_of(files.first_line("/sys/kernel/mm/transparent_hugepage/enabled")),
          .nvidia_driver = files.first_line("/sys/module/nvidia/version")};
}

}  // namespace choral
