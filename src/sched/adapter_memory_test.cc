#include "sched/adapter_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace choral::sched {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr lora::MemoryTier kHost = lora::MemoryTier::kHost;

// Adapters 1 to 5 of 10 bytes each, and voices by key.
class AdapterMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int32_t adapter = 1; adapter <= 5; ++adapter) memory_.add(adapter, 10);
  }
  void join(int32_t key, std::vector<int32_t> adapters) { memory_.join(key, adapters); }
  std::vector<int32_t> loads() {
    std::vector<int32_t> loads;
    drops_.clear();
    memory_.take_decisions(loads, drops_);
    return loads;
  }
  // A request comes, runs and ends.
  void serve(int32_t key, std::vector<int32_t> adapters) {
    join(key, std::move(adapters));
    EXPECT_EQ(memory_.acquire(key, false), Residency::kLoading);
    for (const int32_t adapter : loads()) EXPECT_TRUE(memory_.arrive(adapter));
    EXPECT_EQ(memory_.acquire(key, false), Residency::kResident);
    memory_.release(key);
  }
  int64_t used() const { return memory_.tiers().used_bytes(kHost); }

  AdapterMemory memory_{25};
  std::vector<int32_t> drops_;
};

TEST_F(AdapterMemoryTest, AMixIsClaimedWholeOrNotAtAll) {
  join(20, {1, 3});
  join(21, {2, 4});
  EXPECT_EQ(memory_.acquire(20, false), Residency::kLoading);
  EXPECT_THAT(loads(), ElementsAre(1, 3));
  EXPECT_EQ(used(), 20);
  EXPECT_EQ(memory_.acquire(21, false), Residency::kNoRoom);
  EXPECT_THAT(loads(), IsEmpty()) << "half a mix helps nobody";
  EXPECT_TRUE(memory_.arrive(1));
  EXPECT_EQ(memory_.acquire(20, false), Residency::kLoading);
  EXPECT_TRUE(memory_.arrive(3));
  EXPECT_EQ(memory_.acquire(21, false), Residency::kNoRoom) << "loaded for the first, which has not come for it yet";
  EXPECT_EQ(memory_.acquire(20, false), Residency::kResident);
  EXPECT_EQ(memory_.holders(1), 1);
  memory_.release(20);
  EXPECT_EQ(memory_.acquire(21, false), Residency::kLoading);
  EXPECT_THAT(loads(), ElementsAre(2, 4));
  EXPECT_THAT(drops_, ElementsAre(1, 3));
}

TEST_F(AdapterMemoryTest, AClaimKeepsWhatOfItIsThereAlready) {
  serve(1, {1});
  serve(2, {2});  // 1 is the one unused longest
  join(20, {1, 3});
  EXPECT_EQ(memory_.acquire(20, false), Residency::kLoading);
  EXPECT_THAT(loads(), ElementsAre(3));
  EXPECT_THAT(drops_, ElementsAre(2));
  join(2, {2});
  EXPECT_EQ(memory_.acquire(2, false), Residency::kNoRoom);
  EXPECT_TRUE(memory_.resident(1));
}

TEST_F(AdapterMemoryTest, WhatAnotherLoadsIsSharedAndLoadedOnce) {
  join(1, {1});
  join(20, {1, 2});
  EXPECT_EQ(memory_.acquire(1, false), Residency::kLoading);
  EXPECT_EQ(memory_.acquire(20, false), Residency::kLoading);
  EXPECT_THAT(loads(), ElementsAre(1, 2));
  memory_.leave(1);
  EXPECT_TRUE(memory_.arrive(1));
  EXPECT_TRUE(memory_.arrive(2));
  EXPECT_EQ(memory_.acquire(20, false), Residency::kResident);
}

TEST_F(AdapterMemoryTest, APromotedRequestTakesTheClaimsOfOthersAndWaitsForTheirLoads) {
  join(20, {1, 2});
  join(21, {3, 4});
  EXPECT_EQ(memory_.acquire(20, false), Residency::kLoading);
  EXPECT_TRUE(memory_.arrive(1));
  EXPECT_EQ(memory_.acquire(21, true), Residency::kNoRoom) << "2 is on its way";
  EXPECT_TRUE(memory_.arrive(2));
  EXPECT_THAT(loads(), ElementsAre(1, 2));
  EXPECT_EQ(memory_.acquire(21, true), Residency::kLoading);
  EXPECT_THAT(loads(), ElementsAre(3, 4));
  EXPECT_THAT(drops_, ElementsAre(1, 2));
  EXPECT_EQ(memory_.acquire(20, false), Residency::kNoRoom);
}

TEST_F(AdapterMemoryTest, NobodyFetchesAheadOfAPromotedRequestThatWaits) {
  join(20, {1, 2});
  memory_.prefetch(20);
  EXPECT_THAT(loads(), ElementsAre(1, 2));
  join(21, {3, 4});
  EXPECT_EQ(memory_.acquire(21, true), Residency::kNoRoom);
  EXPECT_TRUE(memory_.arrive(1));
  EXPECT_TRUE(memory_.arrive(2));
  join(5, {5});
  memory_.prefetch(5);
  EXPECT_THAT(loads(), IsEmpty());
  memory_.leave(21);
  memory_.prefetch(5);
  EXPECT_THAT(loads(), ElementsAre(5));
}

TEST_F(AdapterMemoryTest, AClaimEndsWithTheLastWhoWaits) {
  join(20, {1, 2});
  join(20, {1, 2});
  memory_.prefetch(20);
  for (const int32_t adapter : loads()) EXPECT_TRUE(memory_.arrive(adapter));
  memory_.leave(20);
  join(21, {3, 4});
  EXPECT_EQ(memory_.acquire(21, false), Residency::kNoRoom);
  memory_.leave(20);
  EXPECT_EQ(memory_.acquire(21, false), Residency::kLoading);
}

TEST_F(AdapterMemoryTest, AFailedLoadGivesItsRoomAndTheClaimsOnItBack) {
  serve(5, {5});
  join(20, {1, 5});
  join(1, {1});
  EXPECT_EQ(memory_.acquire(20, false), Residency::kLoading);
  EXPECT_EQ(memory_.acquire(1, false), Residency::kLoading);
  memory_.fail(1);
  EXPECT_EQ(used(), 10);
  join(21, {3, 4});
  EXPECT_EQ(memory_.acquire(21, false), Residency::kLoading) << "5 is kept for nobody";
  EXPECT_THAT(loads(), ElementsAre(1, 3, 4));
  memory_.fail(1);  // of another, long over
  memory_.leave(20);
  memory_.leave(1);
}

TEST_F(AdapterMemoryTest, WhatComesUnaskedTakesWhatIsFreeOrUnused) {
  EXPECT_TRUE(memory_.arrive(1));
  EXPECT_TRUE(memory_.arrive(2));
  EXPECT_TRUE(memory_.arrive(3));
  (void)loads();
  EXPECT_THAT(drops_, ElementsAre(1));
  join(20, {2, 3});
  EXPECT_EQ(memory_.acquire(20, false), Residency::kResident);
  EXPECT_FALSE(memory_.arrive(4));
  EXPECT_FALSE(memory_.resident(4));
}

TEST_F(AdapterMemoryTest, AMixThatCannotFitBesideThePinsFails) {
  serve(5, {5});
  EXPECT_TRUE(memory_.pin(5).ok());
  join(20, {1, 2});
  EXPECT_EQ(memory_.acquire(20, true), Residency::kFailed);
  EXPECT_EQ(memory_.needed_bytes(20), 20);
  EXPECT_EQ(memory_.usable_bytes(20), 15);
  join(21, {1, 5});
  EXPECT_EQ(memory_.acquire(21, false), Residency::kLoading) << "its own pin is not in its way";
  memory_.unpin(5);
  EXPECT_EQ(memory_.acquire(20, false), Residency::kNoRoom);
}

TEST_F(AdapterMemoryTest, WhoeverIsGoneLeavesNothingBehind) {
  join(20, {1, 2});
  memory_.prefetch(20);
  memory_.leave(20);
  EXPECT_TRUE(memory_.idle());
  EXPECT_TRUE(memory_.loading(1));
  EXPECT_TRUE(memory_.arrive(1));
  memory_.fail(2);
  memory_.remove(1);
  memory_.remove(2);
  EXPECT_EQ(used(), 0);
}

}  // namespace
}  // namespace choral::sched
