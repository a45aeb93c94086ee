#include "base/cpu_share.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>

#include "base/cgroups.h"
#include "base/cpu_list.h"

namespace choral {
namespace {

constexpr double kNoQuota = 0;

// The time that a group grants, in CPUs.
double quota_of(const SystemFiles& files, const Cgroup& group) {
  std::optional<int64_t> granted, period;
  if (group.version == 2) {
    const std::string line = files.first_line(group.folder + "/cpu.max");  // "50000 100000" or "max 100000"
    granted = leading_number(line);
    if (const size_t blank = line.find(' '); blank != line.npos)
      period = leading_number(std::string_view(line).substr(blank + 1));
  } else {
    granted = files.number(group.folder + "/cpu.cfs_quota_us");  // -1: none
    period = files.number(group.folder + "/cpu.cfs_period_us");
  }
  if (!granted || !period || *granted <= 0 || *period <= 0) return kNoQuota;
  return static_cast<double>(*granted) / static_cast<double>(*period);
}

}  // namespace

int CpuShare::threads() const {
  const int fast = cores - efficient;
  if (quota == kNoQuota) return std::max(fast, 1);
  return std::max(static_cast<int>(std::min<double>(fast, std::ceil(quota))), 1);
}

std::string CpuShare::reason() const {
  if (threads() >= cores) return "";
  if (threads() < cores - efficient)
    return fmt::format("{} grants the time of {:.3g} CPUs, of {} cores", quota_name, quota, cores);
  return fmt::format("{} of {} cores are efficiency cores, for which the others would wait", efficient, cores);
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (int most = CPU_SETSIZE; most <= kMostCpus; most *= 4) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(most), [](cpu_set_t* s) { CPU_FREE(s); });
    const size_t bytes = CPU_ALLOC_SIZE(most);
    if (set == nullptr || sched_getaffinity(0, bytes, set.get()) != 0) continue;  // the kernel's set is larger
    for (int cpu = 0; cpu < most; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  cpus.resize(std::max(1U, std::thread::hardware_concurrency()));
  for (size_t i = 0; i < cpus.size(); ++i) cpus[i] = static_cast<int>(i);
  return cpus;
}

CpuShare cpu_share(const SystemFiles& files, const CpuTopology& topology) {
  CpuShare share{.cpus = static_cast<int>(topology.cpus.size()),
                 .cores = topology.cores(),
                 .efficient = topology.efficient_cores(),
                 .quota = kNoQuota,
                 .quota_name = {}};
  for (const auto& group : cgroups_of(files, "cpu")) {
    const double quota = quota_of(files, group);
    if (quota == kNoQuota || (share.quota != kNoQuota && quota >= share.quota)) continue;
    share.quota = quota;
    share.quota_name = fmt::format("{} of cgroup {}", group.version == 2 ? "cpu.max" : "cpu.cfs_quota_us", group.name);
  }
  return share;
}

}  // namespace choral
