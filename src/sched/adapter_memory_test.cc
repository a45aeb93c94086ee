#include "sched/adapter_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/simulated_engine.h"

namespace choral::sched {
namespace {

using testing::IsEmpty;

constexpr lora::MemoryTier kHost = lora::MemoryTier::kHost;

// Adapters 1 to 5 of 10 bytes each. The keys of mixes begin at 20; below, one is its adapter's alone.
class AdapterMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int32_t adapter = 1; adapter <= 5; ++adapter) memory_.add(AdapterId{adapter}, 10);
  }
  void join(int32_t key, const std::vector<int32_t>& adapters) { memory_.join(AdapterKey{key}, adapter_ids(adapters)); }
  Residency acquire(int32_t key, bool promoted) { return memory_.acquire(AdapterKey{key}, promoted); }
  std::vector<AdapterId> loads() {
    std::vector<AdapterId> loads;
    drops_.clear();
    memory_.take_decisions(loads, drops_);
    return loads;
  }
  // A request comes, runs and ends.
  void serve(int32_t key, const std::vector<int32_t>& adapters) {
    join(key, adapters);
    EXPECT_EQ(acquire(key, false), Residency::kLoading);
    for (const AdapterId adapter : loads()) EXPECT_TRUE(memory_.arrive(adapter));
    EXPECT_EQ(acquire(key, false), Residency::kResident);
    memory_.release(AdapterKey{key});
  }
  int64_t used() const { return memory_.tiers().used_bytes(kHost); }

  AdapterMemory memory_{25};
  std::vector<AdapterId> drops_;
};

TEST_F(AdapterMemoryTest, WhatGoesToTheDeviceStaysOnTheHost) {
  serve(1, {1});
  serve(2, {2});
  for (const int32_t key : {1, 3}) join(key, {key});
  EXPECT_EQ(acquire(1, false), Residency::kResident);
  memory_.hand_back_claimed(AdapterKey{1});
  EXPECT_EQ(memory_.holders(AdapterKey{1}), 0);
  EXPECT_EQ(acquire(3, false), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({3}));
  EXPECT_EQ(drops_, adapter_ids({2})) << "used later, but nobody waits for it";
  EXPECT_EQ(acquire(1, false), Residency::kResident);
  memory_.release(AdapterKey{1});
  join(20, {1, 2});
  EXPECT_EQ(acquire(20, false), Residency::kNoRoom) << "the other load alone is in the way";
  EXPECT_TRUE(memory_.arrive(AdapterId{3}));
  memory_.leave(AdapterKey{3});
  EXPECT_EQ(acquire(20, false), Residency::kLoading);
}

TEST_F(AdapterMemoryTest, AMixIsClaimedWholeOrNotAtAll) {
  join(20, {1, 3});
  join(21, {2, 4});
  EXPECT_EQ(acquire(20, false), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({1, 3}));
  EXPECT_EQ(used(), 20);
  EXPECT_EQ(acquire(21, false), Residency::kNoRoom);
  EXPECT_THAT(loads(), IsEmpty()) << "half a mix helps nobody";
  EXPECT_TRUE(memory_.arrive(AdapterId{1}));
  EXPECT_EQ(acquire(20, false), Residency::kLoading);
  EXPECT_TRUE(memory_.arrive(AdapterId{3}));
  EXPECT_EQ(acquire(21, false), Residency::kNoRoom) << "loaded for the first, which has not come for it yet";
  EXPECT_EQ(acquire(20, false), Residency::kResident);
  EXPECT_EQ(memory_.holders(AdapterId{1}), 1);
  memory_.release(AdapterKey{20});
  EXPECT_EQ(acquire(21, false), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({2, 4}));
  EXPECT_EQ(drops_, adapter_ids({1, 3}));
}

TEST_F(AdapterMemoryTest, AClaimKeepsWhatOfItIsThereAlready) {
  serve(1, {1});
  serve(2, {2});  // 1 is the one unused longest
  join(20, {1, 3});
  EXPECT_EQ(acquire(20, false), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({3}));
  EXPECT_EQ(drops_, adapter_ids({2}));
  join(2, {2});
  EXPECT_EQ(acquire(2, false), Residency::kNoRoom);
  EXPECT_TRUE(memory_.resident(AdapterId{1}));
}

TEST_F(AdapterMemoryTest, WhatAnotherLoadsIsSharedAndLoadedOnce) {
  join(1, {1});
  join(20, {1, 2});
  EXPECT_EQ(acquire(1, false), Residency::kLoading);
  EXPECT_EQ(acquire(20, false), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({1, 2}));
  memory_.leave(AdapterKey{1});
  EXPECT_TRUE(memory_.arrive(AdapterId{1}));
  EXPECT_TRUE(memory_.arrive(AdapterId{2}));
  EXPECT_EQ(acquire(20, false), Residency::kResident);
}

TEST_F(AdapterMemoryTest, APromotedRequestTakesTheClaimsOfOthersAndWaitsForTheirLoads) {
  join(20, {1, 2});
  join(21, {3, 4});
  EXPECT_EQ(acquire(20, false), Residency::kLoading);
  EXPECT_TRUE(memory_.arrive(AdapterId{1}));
  EXPECT_EQ(acquire(21, true), Residency::kNoRoom) << "2 is on its way";
  EXPECT_TRUE(memory_.arrive(AdapterId{2}));
  EXPECT_EQ(loads(), adapter_ids({1, 2}));
  EXPECT_EQ(acquire(21, true), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({3, 4}));
  EXPECT_EQ(drops_, adapter_ids({1, 2}));
  EXPECT_EQ(acquire(20, false), Residency::kNoRoom);
}

TEST_F(AdapterMemoryTest, NobodyFetchesAheadOfAPromotedRequestThatWaits) {
  join(20, {1, 2});
  memory_.prefetch(AdapterKey{20});
  EXPECT_EQ(loads(), adapter_ids({1, 2}));
  join(21, {3, 4});
  EXPECT_EQ(acquire(21, true), Residency::kNoRoom);
  EXPECT_TRUE(memory_.arrive(AdapterId{1}));
  EXPECT_TRUE(memory_.arrive(AdapterId{2}));
  join(5, {5});
  memory_.prefetch(AdapterKey{5});
  EXPECT_THAT(loads(), IsEmpty());
  memory_.leave(AdapterKey{21});
  memory_.prefetch(AdapterKey{5});
  EXPECT_EQ(loads(), adapter_ids({5}));
}

TEST_F(AdapterMemoryTest, AClaimEndsWithTheLastWhoWaits) {
  join(20, {1, 2});
  join(20, {1, 2});
  memory_.prefetch(AdapterKey{20});
  for (const AdapterId adapter : loads()) EXPECT_TRUE(memory_.arrive(adapter));
  memory_.leave(AdapterKey{20});
  join(21, {3, 4});
  EXPECT_EQ(acquire(21, false), Residency::kNoRoom);
  memory_.leave(AdapterKey{20});
  EXPECT_EQ(acquire(21, false), Residency::kLoading);
}

TEST_F(AdapterMemoryTest, AFailedLoadGivesItsRoomAndTheClaimsOnItBack) {
  serve(5, {5});
  join(20, {1, 5});
  join(1, {1});
  EXPECT_EQ(acquire(20, false), Residency::kLoading);
  EXPECT_EQ(acquire(1, false), Residency::kLoading);
  memory_.fail(AdapterId{1});
  EXPECT_EQ(used(), 10);
  join(21, {3, 4});
  EXPECT_EQ(acquire(21, false), Residency::kLoading) << "5 is kept for nobody";
  EXPECT_EQ(loads(), adapter_ids({1, 3, 4}));
  memory_.fail(AdapterId{1});  // of another, long over
  memory_.leave(AdapterKey{20});
  memory_.leave(AdapterKey{1});
}

TEST_F(AdapterMemoryTest, WhatComesUnaskedTakesWhatIsFreeOrUnused) {
  EXPECT_TRUE(memory_.arrive(AdapterId{1}));
  EXPECT_TRUE(memory_.arrive(AdapterId{2}));
  EXPECT_TRUE(memory_.arrive(AdapterId{3}));
  (void)loads();
  EXPECT_EQ(drops_, adapter_ids({1}));
  join(20, {2, 3});
  EXPECT_EQ(acquire(20, false), Residency::kResident);
  EXPECT_FALSE(memory_.arrive(AdapterId{4}));
  EXPECT_FALSE(memory_.resident(AdapterId{4}));
}

TEST_F(AdapterMemoryTest, AMixThatCannotFitBesideThePinsFails) {
  serve(5, {5});
  EXPECT_TRUE(memory_.pin(AdapterId{5}).ok());
  join(20, {1, 2});
  EXPECT_EQ(acquire(20, true), Residency::kFailed);
  EXPECT_EQ(memory_.needed(AdapterKey{20}).bytes, 20);
  EXPECT_EQ(memory_.usable(AdapterKey{20}).bytes, 15);
  join(21, {1, 5});
  EXPECT_EQ(acquire(21, false), Residency::kLoading) << "its own pin is not in its way";
  memory_.unpin(AdapterId{5});
  EXPECT_EQ(acquire(20, false), Residency::kNoRoom);
}

// Room for three of any size, two of which may be pinned.
class AdapterNumberTest : public AdapterMemoryTest {
 protected:
  AdapterNumberTest() { memory_ = AdapterMemory(1000, 3); }
};

TEST_F(AdapterNumberTest, WhoIsUnusedLongestLeavesForTheNumberToo) {
  for (int32_t adapter = 1; adapter <= 4; ++adapter) serve(adapter, {adapter});
  EXPECT_EQ(drops_, adapter_ids({1}));
  EXPECT_EQ(memory_.tiers().used(kHost).adapters, 3);
  EXPECT_EQ(used(), 30);
}

TEST_F(AdapterNumberTest, AMixIsClaimedWholeOrNotAtAll) {
  join(20, {1, 2});
  join(21, {3, 4});
  EXPECT_EQ(acquire(20, false), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({1, 2}));
  EXPECT_EQ(acquire(21, false), Residency::kNoRoom) << "one of its two would fit";
  EXPECT_THAT(loads(), IsEmpty());
  for (const int32_t adapter : {1, 2}) EXPECT_TRUE(memory_.arrive(AdapterId{adapter}));
  EXPECT_EQ(acquire(20, false), Residency::kResident);
  memory_.release(AdapterKey{20});
  EXPECT_EQ(acquire(21, false), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({3, 4}));
  EXPECT_EQ(drops_, adapter_ids({1}));
}

TEST_F(AdapterNumberTest, AMixOfMoreThanAreAllowedBesideThePinsFails) {
  join(20, {1, 2, 3, 4});
  EXPECT_EQ(acquire(20, true), Residency::kFailed);
  EXPECT_EQ(memory_.needed(AdapterKey{20}).adapters, 4);
  EXPECT_EQ(memory_.usable(AdapterKey{20}).adapters, 3);
  serve(5, {5});
  EXPECT_TRUE(memory_.pin(AdapterId{5}).ok());
  join(21, {1, 2, 3});
  EXPECT_EQ(acquire(21, true), Residency::kFailed);
  join(22, {1, 2, 5});
  EXPECT_EQ(acquire(22, false), Residency::kLoading) << "its own pin is not in its way";
}

TEST_F(AdapterNumberTest, PinsLeaveOneForTheOthers) {
  for (int32_t adapter = 1; adapter <= 3; ++adapter) serve(adapter, {adapter});
  EXPECT_TRUE(memory_.pin(AdapterId{1}).ok());
  EXPECT_TRUE(memory_.pin(AdapterId{2}).ok());
  EXPECT_TRUE(memory_.pin(AdapterId{2}).ok()) << "once more";
  const Status refused = memory_.pin(AdapterId{3});
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), testing::HasSubstr("would pin 3 of 3 adapters in host memory, at most 2 may be"));
  EXPECT_EQ(AdapterMemory(1000, 1).tiers().pinnable(kHost).adapters, 0);
}

TEST_F(AdapterMemoryTest, WhoeverIsGoneLeavesNothingBehind) {
  join(20, {1, 2});
  memory_.prefetch(AdapterKey{20});
  memory_.leave(AdapterKey{20});
  EXPECT_TRUE(memory_.idle());
  EXPECT_TRUE(memory_.loading(AdapterId{1}));
  EXPECT_TRUE(memory_.arrive(AdapterId{1}));
  memory_.fail(AdapterId{2});
  memory_.remove(AdapterId{1});
  memory_.remove(AdapterId{2});
  EXPECT_EQ(used(), 0);
}

}  // namespace
}  // namespace choral::sched
