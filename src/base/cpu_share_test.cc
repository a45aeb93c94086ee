#include "base/cpu_share.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "base/cgroups.h"
#include "base/fake_machine_test.h"
#include "base/thread_pool.h"

namespace choral {
namespace {

CpuShare share_of(const FakeMachine& machine, const std::vector<int>& cpus) {
  return cpu_share(machine.files(), topology_of(machine, cpus));
}

// 8 CPUs of one socket; CPU n and n + 4 are a core.
void add_four_cores(const FakeMachine& machine) {
  for (int core = 0; core < 4; ++core) machine.add_core({core, core + 4}, fmt::format("{},{}", core, core + 4));
}

TEST(CpuShare, CountsSiblingsOnce) {
  const FakeMachine machine;
  add_four_cores(machine);
  const CpuShare share = share_of(machine, cpu_range(0, 8));
  EXPECT_EQ(share.cpus, 8);
  EXPECT_EQ(share.cores, 4);
  EXPECT_EQ(share.threads(), 4);
  EXPECT_EQ(share.quota, 0);
  EXPECT_EQ(share.reason(), "");
}

TEST(CpuShare, CountsTheCoresOfASetWithHoles) {
  const FakeMachine machine;
  add_four_cores(machine);
  EXPECT_EQ(share_of(machine, {1, 3, 5, 6}).cores, 3) << "1 and 5 are one";
  EXPECT_EQ(share_of(machine, {5}).cores, 1) << "a sibling alone is a core";
  EXPECT_EQ(share_of(machine, {}).threads(), 1);
}

TEST(CpuShare, ReadsRangesOfSiblings) {
  const FakeMachine machine;
  for (int core = 0; core < 4; ++core) machine.add_core({2 * core, 2 * core + 1}, fmt::format("{}-{}", 2 * core, 2 * core + 1));
  EXPECT_EQ(share_of(machine, cpu_range(0, 8)).cores, 4);
}

TEST(CpuShare, TakesACpuForACoreWhereNothingSensibleIsSaid) {
  const FakeMachine machine;
  for (const char* list : {"", "garbage", "-3", "3-1", "7,9", "0-99999999999", "1;2", "\xff"})
    machine.add_core({0, 1, 2, 3}, list);
  EXPECT_EQ(share_of(machine, cpu_range(0, 4)).cores, 4);
  machine.add_core({0, 1, 2, 3}, std::string(2 * SystemFiles::kMostBytes, '1'));
  EXPECT_EQ(share_of(machine, cpu_range(0, 4)).cores, 4);
}

TEST(CpuShare, StartsNoMoreThreadsThanTheQuotaKeepsBusy) {
  const FakeMachine machine;
  add_four_cores(machine);
  machine.has_cgroup2("/");
  const auto share_with = [&](std::string_view max) {
    machine.write("/sys/fs/cgroup/cpu.max", max);
    return share_of(machine, cpu_range(0, 8));
  };
  EXPECT_EQ(share_with("50000 100000\n").threads(), 1);
  EXPECT_EQ(share_with("50000 100000\n").quota, 0.5);
  EXPECT_EQ(share_with("50000 100000\n").reason(), "cpu.max of cgroup / grants the time of 0.5 CPUs, of 4 cores");
  EXPECT_EQ(share_with("250000 100000\n").threads(), 3);
  EXPECT_EQ(share_with("350000 100000\n").threads(), 4);
  EXPECT_EQ(share_with("350000 100000\n").reason(), "") << "every core is kept busy, now and then";
  EXPECT_EQ(share_with("900000 100000\n").threads(), 4);
  for (const char* none : {"max 100000\n", "", "garbage", "50000", "50000 0\n", "-5 100000\n", "0 100000\n", "50000 max\n"}) {
    EXPECT_EQ(share_with(none).quota, 0) << none;
  }
}

TEST(CpuShare, GoesByTheSmallestQuotaOfNestedGroups) {
  const FakeMachine machine;
  add_four_cores(machine);
  machine.has_cgroup2("/outer.slice/inner.slice/own.scope");
  machine.write("/sys/fs/cgroup/outer.slice/cpu.max", "150000 100000\n");
  machine.write("/sys/fs/cgroup/outer.slice/inner.slice/cpu.max", "300000 100000\n");
  machine.write("/sys/fs/cgroup/outer.slice/inner.slice/own.scope/cpu.max", "max 100000\n");
  machine.write("/sys/fs/cgroup/outer.slice/other.slice/cpu.max", "10000 100000\n");
  const CpuShare share = share_of(machine, cpu_range(0, 8));
  EXPECT_EQ(share.quota, 1.5);
  EXPECT_EQ(share.threads(), 2);
  EXPECT_EQ(share.quota_name, "cpu.max of cgroup /outer.slice");
}

TEST(CpuShare, ReadsVersionOne) {
  const FakeMachine machine;
  add_four_cores(machine);
  // As a container sees it that has the host's names and its own group mounted.
  machine.has_cgroup1("/docker/0a1b/job", "/docker/0a1b");
  machine.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
  machine.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  machine.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  machine.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  const CpuShare share = share_of(machine, cpu_range(0, 8));
  EXPECT_EQ(share.quota, 2);
  EXPECT_EQ(share.quota_name, "cpu.cfs_quota_us of cgroup /");
}

TEST(Cgroups, AreFoundFromTheOwnOneUp) {
  const FakeMachine machine;
  const auto folders = [&](std::string_view controller) {
    std::vector<std::string> out;
    for (const auto& group : cgroups_of(machine.files(), controller)) out.push_back(group.folder);
    return out;
  };
  using Folders = std::vector<std::string>;
  EXPECT_EQ(folders("cpu"), Folders{}) << "no file at all";
  machine.has_cgroup2("/a/b");
  EXPECT_EQ(folders("cpu"), (Folders{"/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"}));
  machine.has_cgroup2("/a/b/c", "/a/b");
  EXPECT_EQ(folders("cpu"), (Folders{"/sys/fs/cgroup/c", "/sys/fs/cgroup"}));
  for (const char* outside : {"/a/bc", "/other", "/../x", "", "no path"}) {
    machine.has_cgroup2(outside, "/a/b");
    EXPECT_EQ(folders("cpu"), Folders{"/sys/fs/cgroup"}) << outside;
  }
  machine.has_cgroup1("/x");
  EXPECT_EQ(folders("memory"), (Folders{"/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"}));
  EXPECT_EQ(folders("cpu"), (Folders{"/sys/fs/cgroup/cpu,cpuacct/x", "/sys/fs/cgroup/cpu,cpuacct"}));
  EXPECT_EQ(folders("cpua"), Folders{}) << "half a name";
  EXPECT_EQ(folders("pids"), Folders{});
}

TEST(Cgroups, OfBothVersionsAreRead) {
  const FakeMachine machine;
  machine.write("/proc/self/cgroup", "4:memory:/m\n0::/u\n");
  machine.write("/proc/self/mountinfo",
                "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                "41 31 0:38 / /sys/fs/cgroup/a\\040blank rw - cgroup2 cgroup2 rw\n");
  const auto groups = cgroups_of(machine.files(), "memory");
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_EQ(groups[0].folder, "/sys/fs/cgroup/a blank/u");
  EXPECT_EQ(groups[0].version, 2);
  EXPECT_EQ(groups[2].folder, "/sys/fs/cgroup/memory/m");
  EXPECT_EQ(groups[2].version, 1);
}

TEST(Cgroups, AreNotFoundInGarbage) {
  const FakeMachine machine;
  machine.has_cgroup2("/a");
  const std::string mounts = machine.files().text("/proc/self/mountinfo");
  for (const std::string& garbage :
       {std::string("\n\n - \n"), std::string(" - cgroup2 "), std::string("1 2 3 - cgroup2 cgroup2 rw"),
        std::string(100'000, ' '), std::string(3 << 20, 'x'), std::string("\0\xff - cgroup", 11)}) {
    machine.write("/proc/self/mountinfo", garbage);
    EXPECT_TRUE(cgroups_of(machine.files(), "cpu").empty());
  }
  machine.write("/proc/self/mountinfo", mounts);
  std::string deep;
  while (deep.size() < 4000) deep += "/d";
  machine.write("/proc/self/cgroup", "0::" + deep + "\n");
  EXPECT_LE(cgroups_of(machine.files(), "cpu").size(), 100U);
  machine.write("/proc/self/cgroup", "0::" + std::string(100'000, '/') + "\n");
  EXPECT_EQ(cgroups_of(machine.files(), "cpu").size(), 1U);
}

// The process's own, of the real machine: bound to one CPU, a thread starts pools of one.
TEST(CpuShare, FollowsTheCallersAffinity) {
  std::thread([] {
    const int cpu = allowed_cpus().back();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(allowed_cpus(), std::vector<int>{cpu});
    EXPECT_EQ(ThreadPool::default_size(), 1);
  }).join();
  EXPECT_EQ(ThreadPool::default_size(), cpu_share().threads());
}

}  // namespace
}  // namespace choral
