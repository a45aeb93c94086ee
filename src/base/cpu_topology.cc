#include "base/cpu_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/cpu_list.h"

namespace choral {
namespace {

std::string file_of(int cpu, std::string_view name) { return fmt::format("/sys/devices/system/cpu/cpu{}/{}", cpu, name); }

// The first CPU of the list that a file holds, if `cpu` is in it.
std::optional<int> first_beside(const SystemFiles& files, int cpu, std::string_view name) {
  const auto list = parse_cpu_list(files.first_line(file_of(cpu, name)));
  if (!list || !std::binary_search(list->begin(), list->end(), cpu)) return std::nullopt;
  return list->front();
}

std::map<int, int> nodes_of_cpus(const SystemFiles& files) {
  std::map<int, int> nodes;
  for (const int node : parse_cpu_list(files.first_line("/sys/devices/system/node/online")).value_or(std::vector<int>())) {
    const auto cpus = parse_cpu_list(files.first_line(fmt::format("/sys/devices/system/node/node{}/cpulist", node)));
    for (const int cpu : cpus.value_or(std::vector<int>())) nodes.emplace(cpu, node);  // none: a node of memory alone
  }
  return nodes;
}

// Intel's kernels list the CPUs of each kind; others say how much work a CPU does, where the fastest does 1024. Cores that clock
// a little less than the best ones are none of a slower kind.
void mark_efficient(const SystemFiles& files, std::vector<CpuPlace>& cpus) {
  constexpr int64_t kLeast = 3, kOf = 4;
  const auto atoms = parse_cpu_list(files.first_line("/sys/devices/cpu_atom/cpus"));
  std::vector<int64_t> capacities;
  for (const auto& place : cpus) capacities.push_back(files.number(file_of(place.cpu, "cpu_capacity")).value_or(0));
  const int64_t most = capacities.empty() ? 0 : *std::max_element(capacities.begin(), capacities.end());
  for (size_t i = 0; i < cpus.size(); ++i) {
    cpus[i].efficient = atoms ? std::binary_search(atoms->begin(), atoms->end(), cpus[i].cpu)
                              : capacities[i] > 0 && capacities[i] < most / kOf * kLeast;
  }
  // Bound to slow ones alone, a process has none that are slower than others.
  if (std::all_of(cpus.begin(), cpus.end(), [](const CpuPlace& place) { return place.efficient; })) {
    for (auto& place : cpus) place.efficient = false;
  }
}

std::string counted(int count, std::string_view what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

}  // namespace

int CpuTopology::distinct(int CpuPlace::*name) const {
  std::set<int> names;
  for (const auto& place : cpus) names.insert(place.*name);
  return static_cast<int>(names.size());
}

int CpuTopology::efficient_cores() const {
  std::set<int> names;
  for (const auto& place : cpus) {
    if (place.efficient) names.insert(place.core);
  }
  return static_cast<int>(names.size());
}

std::string CpuTopology::text() const {
  return fmt::format("{}, {}, {}", counted(sockets(), "socket"), counted(nodes(), "NUMA node"), counted(caches(), "L3 cache"));
}

CpuTopology cpu_topology(const SystemFiles& files, const std::vector<int>& cpus) {
  CpuTopology topology;
  const auto nodes = nodes_of_cpus(files);
  std::map<std::pair<int, int>, int> whole;  // of a node of a socket the first CPU: its cache, where nothing is said of caches
  for (const int cpu : cpus) {
    const auto node = nodes.find(cpu);
    CpuPlace place{.cpu = cpu, .node = node == nodes.end() ? 0 : node->second};
    place.core = first_beside(files, cpu, "topology/thread_siblings_list").value_or(cpu);
    const int64_t socket = files.number(file_of(cpu, "topology/physical_package_id")).value_or(0);
    place.socket = socket >= 0 && socket < kMostCpus ? static_cast<int>(socket) : 0;
    const int first = whole.emplace(std::pair(place.socket, place.node), cpu).first->second;
    place.cache = first_beside(files, cpu, "cache/index3/shared_cpu_list").value_or(first);
    topology.cpus.push_back(place);
  }
  mark_efficient(files, topology.cpus);
  return topology;
}

}  // namespace choral
