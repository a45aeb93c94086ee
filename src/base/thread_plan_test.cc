#include "base/thread_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/cpu_topology.h"
#include "base/fake_machine_test.h"

namespace choral {
namespace {

// How many threads stand at each domain.
std::vector<int> seats_of(const ThreadPlan& plan) {
  std::vector<int> seats;
  for (const auto& seat : plan.seats) {
    if (static_cast<size_t>(seat.domain) >= seats.size()) seats.resize(seat.domain + 1);
    ++seats[seat.domain];
  }
  return seats;
}

TEST(ThreadPlan, WithOneCacheLeavesThreadsWhereTheyAre) {
  const FakeMachine machine;
  machine.add_sockets(1, 1, 1);
  EXPECT_EQ(ThreadPlan::on(topology_of(machine, cpu_range(0, 4)), 4).seats, ThreadPlan::anywhere(4).seats);
  EXPECT_EQ(ThreadPlan::on({}, 1).seats, ThreadPlan::anywhere(1).seats);
  EXPECT_EQ(ThreadPlan::anywhere(0).seats.size(), 1U) << "the caller's";
}

TEST(ThreadPlan, SeatsAThreadForEachCoreAtItsCache) {
  const FakeMachine machine;
  machine.add_sockets(2, 3, 1);
  const auto topology = topology_of(machine, cpu_range(0, 24));
  const auto plan = ThreadPlan::on(topology, 24);
  EXPECT_EQ(seats_of(plan), (std::vector<int>{4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(plan.seats.front().cpus, cpu_range(0, 4));
  EXPECT_EQ(plan.seats.back().cpus, cpu_range(20, 24));
  EXPECT_EQ(seats_of(ThreadPlan::on(topology, 48)), (std::vector<int>{8, 8, 8, 8, 8, 8})) << "more than cores, if somebody wants";
}

TEST(ThreadPlan, LeavesFewerThreadsWhereTheSystemPutsThem) {
  const FakeMachine machine;
  machine.add_sockets(2, 3, 1);
  EXPECT_EQ(ThreadPlan::on(topology_of(machine, cpu_range(0, 24)), 23).seats, ThreadPlan::anywhere(23).seats);
}

TEST(ThreadPlan, SpreadsFewThreadsOverAllCachesWhereToldTo) {
  const FakeMachine machine;
  machine.add_sockets(2, 3, 1);
  const auto topology = topology_of(machine, cpu_range(0, 24));
  EXPECT_EQ(seats_of(ThreadPlan::on(topology, 12, Seating::kSpread)), (std::vector<int>{2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(seats_of(ThreadPlan::on(topology, 24, Seating::kSpread)), seats_of(ThreadPlan::on(topology, 24)));
  const auto few = ThreadPlan::on(topology, 2, Seating::kSpread);  // one a socket
  ASSERT_EQ(few.seats.size(), 2U);
  EXPECT_EQ(few.seats[0].cpus, cpu_range(8, 12));
  EXPECT_EQ(few.seats[1].cpus, cpu_range(20, 24));
  EXPECT_EQ(ThreadPlan::on(topology, 24, Seating::kAnywhere).seats, ThreadPlan::anywhere(24).seats);
}

TEST(ThreadPlan, NumaHasThreeNames) {
  EXPECT_EQ(parse_numa("auto").value(), Seating::kWhereAllAre);
  EXPECT_EQ(parse_numa("off").value(), Seating::kAnywhere);
  EXPECT_EQ(parse_numa("distribute").value(), Seating::kSpread);
  EXPECT_EQ(parse_numa("Distribute").status().code(), Code::kInvalidArgument);
}

// Caches of a node stand together whatever the CPUs' numbers are.
TEST(ThreadPlan, GoesNodeByNode) {
  const FakeMachine machine;
  machine.add_sockets(1, 4, 2);
  machine.write("/sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
  machine.write("/sys/devices/system/node/node1/cpulist", "4-7,12-15\n");
  const auto plan = ThreadPlan::on(topology_of(machine, cpu_range(0, 16)), 16);
  EXPECT_EQ(plan.seats[4].cpus, cpu_range(8, 12));
  EXPECT_EQ(plan.seats[8].cpus, cpu_range(4, 8));
}

TEST(ThreadPlan, HasASetWithHolesInItsSizes) {
  const FakeMachine machine;
  machine.add_sockets(2, 3, 1);
  const auto plan = ThreadPlan::on(topology_of(machine, {1, 2, 5, 13, 14, 15}), 6);
  EXPECT_EQ(seats_of(plan), (std::vector<int>{2, 1, 3}));
  EXPECT_EQ(plan.seats[2].cpus, std::vector<int>{5});
  EXPECT_EQ(plan.seats[3].cpus, (std::vector<int>{13, 14, 15}));
}

TEST(ThreadPlan, SeatsThreadsAtSlowCoresOnlyWhenThereAreThreadsForThem) {
  const FakeMachine machine;
  machine.add_sockets(1, 3, 1);
  machine.write("/sys/devices/cpu_atom/cpus", "8-11\n");
  const auto topology = topology_of(machine, cpu_range(0, 12));
  EXPECT_EQ(seats_of(ThreadPlan::on(topology, 8)), (std::vector<int>{4, 4}));
  EXPECT_EQ(seats_of(ThreadPlan::on(topology, 12)), (std::vector<int>{4, 4, 4}));
}

TEST(ThreadPlan, HasAPartForEachNode) {
  const FakeMachine machine;
  machine.add_sockets(2, 3, 1);
  const auto plan = ThreadPlan::on(topology_of(machine, cpu_range(0, 24)), 24);
  for (const int part : {0, 1}) {
    const auto own = plan.part(part, 2);
    EXPECT_EQ(seats_of(own), (std::vector<int>{4, 4, 4}));
    EXPECT_EQ(own.seats.front().cpus, cpu_range(12 * part, 12 * part + 4));
  }
  const auto uneven = ThreadPlan::anywhere(7);
  EXPECT_EQ(uneven.part(0, 3).seats.size() + uneven.part(1, 3).seats.size() + uneven.part(2, 3).seats.size(), 7U);
  EXPECT_EQ(ThreadPlan::anywhere(3).part(2, 3).seats, ThreadPlan::anywhere(1).seats);
}

}  // namespace
}  // namespace choral
