#include "base/cpu_topology.h"

#include <gtest/gtest.h>

#include "base/cpu_list.h"
#include "base/cpu_share.h"
#include "base/fake_machine_test.h"

namespace choral {
namespace {

// Two fast cores with siblings (0-3) and four slow ones (4-7) under one cache, as a laptop has them.
void add_hybrid(const FakeMachine& machine) {
  machine.add_core({0, 1}, "0-1");
  machine.add_core({2, 3}, "2-3");
  for (int cpu = 4; cpu < 8; ++cpu) machine.add_core({cpu}, fmt::format("{}", cpu));
  for (int cpu = 0; cpu < 8; ++cpu) machine.add_place(cpu, 0, "0-7");
}

TEST(CpuList, IsReadAsTheKernelWritesIt) {
  EXPECT_EQ(parse_cpu_list("0-2,8"), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(parse_cpu_list("8,0-2,1"), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(parse_cpu_list("65535"), std::vector<int>{65535});
  for (const char* bad :
       {"", " ", "a", "-3", "3-1", "0-", "0,,1", "1;2", "0-99999999999", "65536", "0-1 ", "\xff", "--", "0--1"}) {
    EXPECT_FALSE(parse_cpu_list(bad)) << bad;
  }
  for (const char* list : {"0-2,8", "3", "0-1,3-4,6", "0-127"}) EXPECT_EQ(cpu_list_text(*parse_cpu_list(list)), list);
}

TEST(CpuTopology, IsReadOfSocketsNodesAndCaches) {
  const FakeMachine one, two, clustered;
  one.add_sockets(1, 1, 1);
  EXPECT_EQ(topology_of(one, cpu_range(0, 4)).text(), "1 socket, 1 NUMA node, 1 L3 cache");
  two.add_sockets(2, 3, 1);
  const auto topology = topology_of(two, cpu_range(0, 24));
  EXPECT_EQ(topology.text(), "2 sockets, 2 NUMA nodes, 6 L3 caches");
  EXPECT_EQ(topology.cores(), 24);
  EXPECT_EQ(topology.cpus[13], (CpuPlace{.cpu = 13, .core = 13, .cache = 12, .node = 1, .socket = 1}));
  clustered.add_sockets(1, 4, 2);
  EXPECT_EQ(topology_of(clustered, cpu_range(0, 16)).text(), "1 socket, 2 NUMA nodes, 4 L3 caches") << "sub-NUMA clustering";
}

TEST(CpuTopology, OfAHybridProcessorTellsTheSlowCoresApart) {
  const FakeMachine machine;
  add_hybrid(machine);
  const auto share_of = [&](const std::vector<int>& cpus) { return cpu_share(machine.files(), topology_of(machine, cpus)); };
  EXPECT_EQ(share_of(cpu_range(0, 8)).threads(), 6) << "nothing says that they are slower";
  machine.write("/sys/devices/cpu_core/cpus", "0-3\n");
  machine.write("/sys/devices/cpu_atom/cpus", "4-7\n");
  EXPECT_EQ(share_of(cpu_range(0, 8)).cores, 6);
  EXPECT_EQ(share_of(cpu_range(0, 8)).threads(), 2);
  EXPECT_EQ(share_of(cpu_range(0, 8)).reason(), "4 of 6 cores are efficiency cores, for which the others would wait");
  EXPECT_EQ(share_of(cpu_range(4, 8)).threads(), 4) << "bound to slow cores alone, it has none that wait";
  EXPECT_EQ(share_of({1, 5}).threads(), 1);
  machine.has_cgroup2("/");
  machine.write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(share_of(cpu_range(0, 8)).threads(), 1);
  EXPECT_EQ(share_of(cpu_range(0, 8)).reason(), "cpu.max of cgroup / grants the time of 0.5 CPUs, of 6 cores");
  machine.write("/sys/fs/cgroup/cpu.max", "350000 100000\n");
  EXPECT_EQ(share_of(cpu_range(0, 8)).threads(), 2);
}

TEST(CpuTopology, TellsSlowCoresByTheirCapacityToo) {
  const FakeMachine machine;
  add_hybrid(machine);
  const auto slow_with = [&](std::string_view fast, std::string_view slow) {
    for (int cpu = 0; cpu < 8; ++cpu) {
      machine.write(fmt::format("/sys/devices/system/cpu/cpu{}/cpu_capacity", cpu), cpu < 4 ? fast : slow);
    }
    return topology_of(machine, cpu_range(0, 8)).efficient_cores();
  };
  EXPECT_EQ(slow_with("1024\n", "614\n"), 4);
  EXPECT_EQ(slow_with("1024\n", "960\n"), 0) << "the same kind, with less clock";
  EXPECT_EQ(slow_with("1024\n", "1024\n"), 0);
  EXPECT_EQ(slow_with("1024\n", "garbage"), 0);
}

TEST(CpuTopology, CountsOnlyWhatTheProcessMayUse) {
  const FakeMachine machine;
  machine.add_sockets(2, 3, 1);
  const std::vector<int> holes{1, 2, 5, 13, 14, 15};
  const auto topology = topology_of(machine, holes);
  EXPECT_EQ(topology.text(), "2 sockets, 2 NUMA nodes, 3 L3 caches");
}

TEST(CpuTopology, TakesWhatIsNotSaidForOne) {
  const FakeMachine machine;
  EXPECT_EQ(topology_of(machine, {}).cores(), 0);
  EXPECT_EQ(topology_of(machine, cpu_range(0, 4)).text(), "1 socket, 1 NUMA node, 1 L3 cache");
  EXPECT_EQ(topology_of(machine, cpu_range(0, 4)).cores(), 4);
  for (int cpu = 0; cpu < 4; ++cpu) machine.add_place(cpu, cpu / 2, "garbage");
  EXPECT_EQ(topology_of(machine, cpu_range(0, 4)).text(), "2 sockets, 1 NUMA node, 2 L3 caches") << "a cache is a socket's";
  for (int cpu = 0; cpu < 4; ++cpu) machine.add_place(cpu, -1, cpu == 0 ? "7-9" : "garbage");
  machine.write("/sys/devices/system/node/online", "0-99999999\n");
  EXPECT_EQ(topology_of(machine, cpu_range(0, 4)).text(), "1 socket, 1 NUMA node, 1 L3 cache");
}

}  // namespace
}  // namespace choral
