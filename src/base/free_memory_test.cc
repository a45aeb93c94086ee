#include "base/free_memory.h"

#include <gmock/gmock.h>

#include "base/fake_machine_test.h"
#include "base/machine_facts.h"

namespace choral {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
constexpr int64_t kKiBOfGiB = int64_t{1} << 20;

std::string bytes(int64_t count) { return std::to_string(count) + "\n"; }

FreeMemory of(const FakeMachine& machine, const ProcessLimits& limits = {}) { return free_memory(machine.files(), limits); }

TEST(FreeMemory, IsTheMachinesWhereNothingLimitsIt) {
  const FakeMachine machine;
  machine.has_memory(16 * kKiBOfGiB, 12 * kKiBOfGiB, 2 * kKiBOfGiB);
  const FreeMemory memory = of(machine);
  EXPECT_EQ(memory.least_free.free_bytes, 12 * kGiB);
  EXPECT_EQ(memory.least_total.total_bytes, 18 * kGiB);
  EXPECT_EQ(memory.least_free.name, "");
}

TEST(FreeMemory, LeavesOutOfAGroupsUseWhatIsGivenUpForOthers) {
  const FakeMachine machine;
  machine.has_memory(16 * kKiBOfGiB, 12 * kKiBOfGiB);
  machine.has_cgroup2("/");
  machine.write("/sys/fs/cgroup/memory.max", bytes(4 * kGiB));
  machine.write("/sys/fs/cgroup/memory.current", bytes(3 * kGiB));
  machine.write("/sys/fs/cgroup/memory.stat", fmt::format("anon 7\nactive_file {}\ninactive_file {}\n", kGiB, kGiB));
  const FreeMemory memory = of(machine);
  EXPECT_EQ(memory.least_free.free_bytes, 3 * kGiB);
  EXPECT_EQ(memory.least_total.total_bytes, 4 * kGiB);
  EXPECT_EQ(memory.least_free.name, "memory.max of cgroup /");
  EXPECT_EQ(memory.machine.free_bytes, 12 * kGiB);
}

TEST(FreeMemory, IsTheLeastThatNestedGroupsLeave) {
  const FakeMachine machine;
  machine.has_memory(16 * kKiBOfGiB, 12 * kKiBOfGiB);
  machine.has_cgroup2("/outer/inner/own");
  machine.write("/sys/fs/cgroup/outer/memory.max", bytes(8 * kGiB));
  machine.write("/sys/fs/cgroup/outer/memory.current", bytes(7 * kGiB));  // others are in it
  machine.write("/sys/fs/cgroup/outer/inner/memory.max", bytes(4 * kGiB));
  machine.write("/sys/fs/cgroup/outer/inner/memory.current", bytes(kGiB));
  machine.write("/sys/fs/cgroup/outer/inner/own/memory.max", "max\n");
  const FreeMemory memory = of(machine);
  EXPECT_EQ(memory.least_free.free_bytes, kGiB);
  EXPECT_EQ(memory.least_free.name, "memory.max of cgroup /outer");
  EXPECT_EQ(memory.least_total.total_bytes, 4 * kGiB);
  EXPECT_EQ(memory.least_total.name, "memory.max of cgroup /outer/inner");
}

TEST(FreeMemory, ReadsVersionOne) {
  const FakeMachine machine;
  machine.has_memory(16 * kKiBOfGiB, 12 * kKiBOfGiB);
  machine.has_cgroup1("/outer/own");
  const std::string memory = "/sys/fs/cgroup/memory", own = memory + "/outer/own/", outer = memory + "/outer/";
  machine.write(own + "memory.limit_in_bytes", "9223372036854771712\n");  // none
  machine.write(outer + "memory.limit_in_bytes", bytes(2 * kGiB));
  machine.write(outer + "memory.usage_in_bytes", bytes(kGiB));
  machine.write(outer + "memory.stat", fmt::format("active_file 5\ntotal_active_file {}\ntotal_inactive_file 0\n", 512 * kMiB));
  machine.write(outer + "memory.use_hierarchy", "1\n");
  EXPECT_EQ(of(machine).least_free.free_bytes, 3 * kGiB / 2);
  EXPECT_EQ(of(machine).least_free.name, "memory.limit_in_bytes of cgroup /outer");
  machine.write(outer + "memory.use_hierarchy", "0\n");
  EXPECT_EQ(of(machine).least_free.name, "") << "what groups in it use is not counted there";
}

TEST(FreeMemory, IsBoundedByTheProcesssLimits) {
  const FakeMachine machine;
  machine.has_memory(16 * kKiBOfGiB, 12 * kKiBOfGiB);
  machine.write("/proc/self/status", "Name:\tchoral\nVmPeak:\t 1 kB\nVmSize:\t  524288 kB\nVmData:\t  262144 kB\n");
  const FreeMemory addresses = of(machine, {.address_bytes = 2 * kGiB, .data_bytes = 4 * kGiB});
  EXPECT_EQ(addresses.least_free.free_bytes, 3 * kGiB / 2);
  EXPECT_EQ(addresses.least_total.total_bytes, 2 * kGiB);
  EXPECT_EQ(addresses.least_free.name, "RLIMIT_AS (ulimit -v)");
  EXPECT_THAT(addresses.least_free.cure, HasSubstr("ulimit -v unlimited"));
  const FreeMemory data = of(machine, {.address_bytes = 2 * kGiB, .data_bytes = kGiB});
  EXPECT_EQ(data.least_free.free_bytes, 768 * kMiB);
  EXPECT_EQ(data.least_free.name, "RLIMIT_DATA (ulimit -d)");
  EXPECT_EQ(of(machine, {.address_bytes = 256 * kMiB, .data_bytes = -1}).least_free.free_bytes, 0) << "more is used than allowed";
}

TEST(FreeMemory, BelievesNoGarbage) {
  const FakeMachine machine;
  EXPECT_GT(of(machine).least_free.free_bytes, int64_t{1} << 60) << "nothing can be read: no limit is known";
  machine.has_memory(16 * kKiBOfGiB, 12 * kKiBOfGiB);
  machine.has_cgroup2("/");
  for (const std::string& garbage : {std::string("max"), std::string("-1"), std::string("0"), std::string("x"),
                                     std::string(2 << 20, '9'), std::string("99999999999999999999")}) {
    machine.write("/sys/fs/cgroup/memory.max", garbage);
    EXPECT_EQ(of(machine).least_free.name, "") << garbage.substr(0, 30);
  }
  machine.write("/sys/fs/cgroup/memory.max", bytes(kGiB));
  for (const char* garbage : {"", "-7", "x", "99999999999999999999"}) {
    machine.write("/sys/fs/cgroup/memory.current", garbage);
    EXPECT_EQ(of(machine).least_free.free_bytes, kGiB) << garbage;
  }
  machine.write("/sys/fs/cgroup/memory.current", bytes(5 * kGiB));
  EXPECT_EQ(of(machine).least_free.free_bytes, 0);
  machine.write("/sys/fs/cgroup/memory.stat", "active_file 9000000000000000000\ninactive_file -4\n");
  EXPECT_EQ(of(machine).least_free.free_bytes, kGiB);
  machine.write("/proc/meminfo", "MemTotal: 9223372036854775807 kB\nMemAvailable: -5 kB\nSwapTotal: lots\n");
  EXPECT_EQ(of(machine).least_total.total_bytes, kGiB);
}

// Of this machine, whatever it is.
TEST(FreeMemory, IsKnownHere) {
  const FreeMemory memory = free_memory();
  EXPECT_GT(memory.least_free.free_bytes, kMiB);
  EXPECT_LT(memory.least_free.free_bytes, int64_t{1} << 50);
  EXPECT_LE(memory.least_free.free_bytes, memory.machine.free_bytes);
  EXPECT_LE(memory.least_total.total_bytes, memory.machine.total_bytes);
}

TEST(MachineFacts, AreReadFromItsFiles) {
  const FakeMachine machine;
  machine.add_core({0, 1}, "0-1");
  machine.write("/proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n");
  machine.write("/sys/devices/system/cpu/smt/active", "1\n");
  machine.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  const MachineFacts facts = machine_facts(machine.files(), {0, 1}, {});
  EXPECT_EQ(facts.cpu_model, "A CPU @ 2 GHz");
  EXPECT_EQ(facts.cpu.cores, 1);
  EXPECT_TRUE(facts.smt);
  EXPECT_EQ(facts.huge_pages, "madvise");
  EXPECT_EQ(facts.nvidia_driver, "");
  machine.write("/sys/module/nvidia/version", "580.159.04\n");
  EXPECT_EQ(machine_facts(machine.files(), {0}, {}).nvidia_driver, "580.159.04");
  for (const char* garbage : {"", "[", "]", "]always[", "never"}) {
    machine.write("/sys/kernel/mm/transparent_hugepage/enabled", garbage);
    EXPECT_EQ(machine_facts(machine.files(), {0}, {}).huge_pages, "") << garbage;
  }
}

}  // namespace
}  // namespace choral
