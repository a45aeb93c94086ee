#include "sched/adapter_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/simulated_engine_test.h"

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
  // After those that were asked before it, in a round that the test begins.
  Residency acquire(int32_t key) { return memory_.acquire(AdapterKey{key}); }
  bool prefetch(int32_t key) { return memory_.prefetch(AdapterKey{key}); }
  std::vector<AdapterId> loads() {
    std::vector<AdapterId> loads;
    drops_.clear();
    memory_.take_decisions(loads, drops_);
    return loads;
  }
  // A request comes, runs and ends.
  void serve(int32_t key, const std::vector<int32_t>& adapters) {
    join(key, adapters);
    EXPECT_EQ(acquire(key), Residency::kLoading);
    for (const AdapterId adapter : loads()) EXPECT_TRUE(memory_.arrive(adapter));
    EXPECT_EQ(acquire(key), Residency::kResident);
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
  EXPECT_EQ(acquire(1), Residency::kResident);
  memory_.hand_back(AdapterKey{1});
  EXPECT_EQ(memory_.holders(AdapterKey{1}), 0);
  EXPECT_EQ(acquire(3), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({3}));
  EXPECT_EQ(drops_, adapter_ids({2})) << "used later, but nobody waits for it";
  EXPECT_EQ(acquire(1), Residency::kResident);
  memory_.release(AdapterKey{1});
  join(20, {1, 2});
  EXPECT_EQ(acquire(20), Residency::kNoRoom) << "the other load alone is in the way";
  EXPECT_TRUE(memory_.arrive(AdapterId{3}));
  memory_.leave(AdapterKey{3});
  EXPECT_EQ(acquire(20), Residency::kLoading);
}

TEST_F(AdapterMemoryTest, AMixIsClaimedWholeOrNotAtAll) {
  join(20, {1, 3});
  join(21, {2, 4});
  EXPECT_EQ(acquire(20), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({1, 3}));
  EXPECT_EQ(used(), 20);
  EXPECT_EQ(acquire(21), Residency::kNoRoom);
  EXPECT_THAT(loads(), IsEmpty()) << "half a mix helps nobody";
  EXPECT_TRUE(memory_.arrive(AdapterId{1}));
  EXPECT_EQ(acquire(20), Residency::kLoading);
  EXPECT_TRUE(memory_.arrive(AdapterId{3}));
  EXPECT_EQ(acquire(21), Residency::kNoRoom) << "loaded for the first, which has not come for it yet";
  EXPECT_EQ(acquire(20), Residency::kResident);
  EXPECT_EQ(memory_.holders(AdapterId{1}), 1);
  memory_.release(AdapterKey{20});
  EXPECT_EQ(acquire(21), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({2, 4}));
  EXPECT_EQ(drops_, adapter_ids({1, 3}));
}

TEST_F(AdapterMemoryTest, AClaimKeepsWhatOfItIsThereAlready) {
  serve(1, {1});
  serve(2, {2});  // 1 is the one unused longest
  join(20, {1, 3});
  EXPECT_EQ(acquire(20), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({3}));
  EXPECT_EQ(drops_, adapter_ids({2}));
  join(2, {2});
  EXPECT_EQ(acquire(2), Residency::kNoRoom);
  EXPECT_TRUE(memory_.resident(AdapterId{1}));
}

TEST_F(AdapterMemoryTest, WhatAnotherLoadsIsSharedAndLoadedOnce) {
  join(1, {1});
  join(20, {1, 2});
  EXPECT_EQ(acquire(1), Residency::kLoading);
  EXPECT_EQ(acquire(20), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({1, 2}));
  memory_.leave(AdapterKey{1});
  EXPECT_TRUE(memory_.arrive(AdapterId{1}));
  EXPECT_TRUE(memory_.arrive(AdapterId{2}));
  EXPECT_EQ(acquire(20), Residency::kResident);
}

TEST_F(AdapterMemoryTest, WhoIsAskedFirstTakesTheClaimsOfOthersAndWaitsForTheirLoads) {
  join(20, {1, 2});
  join(21, {3, 4});
  EXPECT_EQ(acquire(20), Residency::kLoading);
  EXPECT_TRUE(memory_.arrive(AdapterId{1}));
  EXPECT_EQ(acquire(21), Residency::kNoRoom) << "the other was asked before";
  memory_.begin_round();
  EXPECT_EQ(acquire(21), Residency::kNoRoom) << "2 is on its way";
  EXPECT_TRUE(memory_.arrive(AdapterId{2}));
  EXPECT_EQ(loads(), adapter_ids({1, 2}));
  memory_.begin_round();
  EXPECT_EQ(acquire(21), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({3, 4}));
  EXPECT_EQ(drops_, adapter_ids({1, 2}));
  EXPECT_EQ(acquire(20), Residency::kNoRoom);
}

TEST_F(AdapterMemoryTest, TheLastInTheOrderLosesItsClaimFirst) {
  memory_ = AdapterMemory(30);
  for (int32_t adapter = 1; adapter <= 5; ++adapter) memory_.add(AdapterId{adapter}, 10);
  for (const int32_t key : {1, 2, 3}) {
    serve(key, {key});
    join(key, {key});
  }
  join(4, {4});
  join(5, {5});
  // Two rounds in which they are asked in this order, as far as there are places.
  for (const int32_t key : {2, 3, 1}) {
    EXPECT_EQ(acquire(key), Residency::kResident);
    memory_.hand_back(AdapterKey{key});
  }
  memory_.begin_round();
  for (const int32_t key : {2, 3}) {
    EXPECT_EQ(acquire(key), Residency::kResident);
    memory_.hand_back(AdapterKey{key});
  }
  memory_.begin_round();
  EXPECT_EQ(acquire(4), Residency::kLoading);
  (void)loads();
  EXPECT_EQ(drops_, adapter_ids({1}));
  EXPECT_EQ(acquire(5), Residency::kLoading);
  (void)loads();
  EXPECT_EQ(drops_, adapter_ids({3}));
  EXPECT_EQ(acquire(2), Residency::kResident) << "it lost nothing";
}

TEST_F(AdapterMemoryTest, AheadOfItsTurnAKeyGetsWhatIsFreeAlone) {
  serve(1, {1});
  join(20, {2, 3});
  EXPECT_FALSE(prefetch(20));
  EXPECT_THAT(loads(), IsEmpty()) << "half a mix helps nobody";
  join(2, {2});
  EXPECT_TRUE(prefetch(2));
  EXPECT_EQ(loads(), adapter_ids({2}));
  EXPECT_TRUE(prefetch(2)) << "it has what it needs";
  join(4, {4});
  EXPECT_FALSE(prefetch(4));
  EXPECT_THAT(loads(), IsEmpty());
  EXPECT_THAT(drops_, IsEmpty()) << "nobody uses 1, but nobody's turn needs its room";
  EXPECT_EQ(acquire(4), Residency::kLoading);
  (void)loads();
  EXPECT_EQ(drops_, adapter_ids({1}));
}

TEST_F(AdapterMemoryTest, WhoWasAskedForAndGaveUpHoldsNothingBack) {
  join(1, {1});
  EXPECT_EQ(acquire(1), Residency::kLoading);
  EXPECT_TRUE(memory_.arrive(AdapterId{1}));
  EXPECT_EQ(acquire(1), Residency::kResident);
  (void)loads();
  for (int i = 0; i < 2; ++i) join(21, {3, 4});
  memory_.begin_round();
  EXPECT_EQ(acquire(21), Residency::kNoRoom);
  memory_.leave(AdapterKey{21});  // another still waits with this key
  join(5, {5});
  EXPECT_TRUE(prefetch(5));
  EXPECT_EQ(loads(), adapter_ids({5}));
}

TEST_F(AdapterMemoryTest, WhoWaitsWithWhatIsInMemoryKeepsIt) {
  serve(1, {1});
  join(1, {1});
  serve(2, {2});
  EXPECT_TRUE(memory_.arrive(AdapterId{3})) << "by a load that nobody here asked for";
  (void)loads();
  EXPECT_EQ(drops_, adapter_ids({2}));
  join(3, {3});
  EXPECT_FALSE(memory_.arrive(AdapterId{4}));
  EXPECT_EQ(acquire(1), Residency::kResident);
  join(1, {1});
  memory_.release(AdapterKey{1});
  EXPECT_FALSE(memory_.arrive(AdapterId{4})) << "the next of this key waits";
  EXPECT_EQ(acquire(1), Residency::kResident);
  EXPECT_THAT(loads(), IsEmpty());
}

TEST_F(AdapterMemoryTest, AClaimEndsWithTheLastWhoWaits) {
  join(20, {1, 2});
  join(20, {1, 2});
  EXPECT_TRUE(prefetch(20));
  for (const AdapterId adapter : loads()) EXPECT_TRUE(memory_.arrive(adapter));
  memory_.leave(AdapterKey{20});
  EXPECT_FALSE(memory_.arrive(AdapterId{3}));
  memory_.leave(AdapterKey{20});
  EXPECT_TRUE(memory_.arrive(AdapterId{3}));
}

TEST_F(AdapterMemoryTest, AFailedLoadGivesItsRoomAndTheClaimsOnItBack) {
  serve(5, {5});
  join(20, {1, 5});
  join(1, {1});
  EXPECT_EQ(acquire(20), Residency::kLoading);
  EXPECT_EQ(acquire(1), Residency::kLoading);
  memory_.fail(AdapterId{1});
  EXPECT_EQ(used(), 10);
  join(21, {3, 4});
  EXPECT_EQ(acquire(21), Residency::kLoading) << "5 is kept for nobody";
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
  EXPECT_EQ(acquire(20), Residency::kResident);
  EXPECT_FALSE(memory_.arrive(AdapterId{4}));
  EXPECT_FALSE(memory_.resident(AdapterId{4}));
}

TEST_F(AdapterMemoryTest, AMixThatCannotFitBesideThePinsFails) {
  serve(5, {5});
  EXPECT_TRUE(memory_.pin(AdapterId{5}).ok());
  join(20, {1, 2});
  EXPECT_EQ(acquire(20), Residency::kFailed);
  EXPECT_EQ(memory_.needed(AdapterKey{20}).bytes, 20);
  EXPECT_EQ(memory_.usable(AdapterKey{20}).bytes, 15);
  join(21, {1, 5});
  EXPECT_EQ(acquire(21), Residency::kLoading) << "its own pin is not in its way";
  memory_.unpin(AdapterId{5});
  EXPECT_EQ(acquire(20), Residency::kNoRoom);
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
  EXPECT_EQ(acquire(20), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({1, 2}));
  EXPECT_EQ(acquire(21), Residency::kNoRoom) << "one of its two would fit";
  EXPECT_THAT(loads(), IsEmpty());
  for (const int32_t adapter : {1, 2}) EXPECT_TRUE(memory_.arrive(AdapterId{adapter}));
  EXPECT_EQ(acquire(20), Residency::kResident);
  memory_.release(AdapterKey{20});
  EXPECT_EQ(acquire(21), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({3, 4}));
  EXPECT_EQ(drops_, adapter_ids({1}));
}

TEST_F(AdapterNumberTest, AMixOfMoreThanAreAllowedBesideThePinsFails) {
  join(20, {1, 2, 3, 4});
  EXPECT_EQ(acquire(20), Residency::kFailed);
  EXPECT_EQ(memory_.needed(AdapterKey{20}).adapters, 4);
  EXPECT_EQ(memory_.usable(AdapterKey{20}).adapters, 3);
  serve(5, {5});
  EXPECT_TRUE(memory_.pin(AdapterId{5}).ok());
  join(21, {1, 2, 3});
  EXPECT_EQ(acquire(21), Residency::kFailed);
  join(22, {1, 2, 5});
  EXPECT_EQ(acquire(22), Residency::kLoading) << "its own pin is not in its way";
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
  EXPECT_TRUE(prefetch(20));
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
