#include "support/allocation_counter.h"

#include <gmock/gmock.h>

#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace choral::testing {
namespace {

struct alignas(128) Wide {
  char bytes[128];
};

// Keeps the compiler from leaving out a new/delete pair.
void keep(void* p) { __asm__ volatile("" : : "g"(p) : "memory"); }

TEST(AllocationCounter, SeesEveryFormOfNew) {
  const auto count = count_allocations([] {
    keep(std::make_unique<int>(1).get());
    keep(std::make_unique<int[]>(10).get());
    keep(std::make_unique<Wide>().get());
    int* p = new (std::nothrow) int;
    keep(p);
    delete p;
  });
  EXPECT_EQ(count.allocations, 4);
  EXPECT_EQ(count.frees, 4);
  EXPECT_EQ(count.bytes, static_cast<int64_t>(sizeof(int) + 10 * sizeof(int) + sizeof(Wide) + sizeof(int)));
  EXPECT_EQ(count.largest_bytes, sizeof(Wide));
}

TEST(AllocationCounter, CountsNothingForReservedMemoryAndShortStrings) {
  std::vector<int> values;
  values.reserve(100);
  std::string text;
  const auto count = count_allocations([&] {
    for (int i = 0; i < 100; ++i) values.push_back(i);
    text = "short";
  });
  EXPECT_EQ(count.allocations, 0);
}

TEST(AllocationCounter, FailsForTheOthers) {
  fail_allocations_of_others(1000);
  size_t large = 0, small = 0;
  bool failed = false;
  std::thread other([&] {
    small = std::string(500, 'x').size();
    try {
      large = std::string(1000, 'x').size();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  });
  other.join();
  const std::string own(5000, 'x');
  fail_allocations_of_others(0);
  EXPECT_TRUE(failed);
  EXPECT_EQ(large, 0u);
  EXPECT_EQ(small, 500u);
  EXPECT_EQ(own.size(), 5000u);
  std::thread([&] { large = std::string(1000, 'x').size(); }).join();
  EXPECT_EQ(large, 1000u);
}

TEST(AllocationCounter, FailsTheNthOnce) {
  const auto failures = [](int64_t news) {
    int64_t failed = 0;
    for (int64_t i = 0; i < news; ++i) {
      int* p = new (std::nothrow) int;
      keep(p);
      failed += p == nullptr ? 1 : 0;
      delete p;
    }
    return failed;
  };
  fail_nth_allocation(3);
  EXPECT_EQ(failures(2), 0);
  EXPECT_EQ(failures(1), 1);
  EXPECT_EQ(failures(5), 0);
  EXPECT_TRUE(stop_failing_nth_allocation());
  EXPECT_FALSE(stop_failing_nth_allocation());
  int64_t of_other = 0;
  fail_nth_allocation_of_others(1);
  const int64_t own = failures(3);
  std::thread([&] { of_other = failures(3); }).join();
  EXPECT_TRUE(stop_failing_nth_allocation());
  EXPECT_EQ(own, 0);
  EXPECT_EQ(of_other, 1);
}

TEST(AllocationCounter, SeesOtherThreads) {
  std::vector<std::unique_ptr<int>> made(100);
  const auto count = count_allocations([&] {
    std::thread other([&] {
      for (auto& m : made) m = std::make_unique<int>(0);
    });
    other.join();
  });
  EXPECT_GE(count.allocations, 100);
}

TEST(AllocationCounter, StartsFromZeroAndStops) {
  count_allocations([] { keep(std::make_unique<int>(1).get()); });
  keep(std::make_unique<int>(1).get());
  EXPECT_EQ(count_allocations([] {}).allocations, 0);
}

TEST(AllocationCounter, AlignsWhatItGives) {
  for (int i = 0; i < 20; ++i) {
    const auto wide = std::make_unique<Wide>();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(wide.get()) % alignof(Wide), 0u);
  }
}

TEST(AllocationCounterDeathTest, AbortsAtTheCulprit) {
  EXPECT_DEATH(
      {
        abort_on_allocation(true);
        count_allocations([] { keep(std::make_unique<int>(1).get()); });
      },
      "");
}

}  // namespace
}  // namespace choral::testing
