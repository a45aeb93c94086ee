#include "sched/adapter_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sched/simulated_engine_test.h"

namespace choral::sched {
namespace {

using testing::IsEmpty;

// Adapters 1 to 5 of 10 bytes each. The numbers of mixes begin at 20; below, a voice has its adapter's alone.
class AdapterMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int32_t adapter = 1; adapter <= 5; ++adapter) memory_.add(AdapterId{adapter}, 10);
  }
  void join(int32_t number, const std::vector<int32_t>& adapters) {
    std::vector<VoiceTerm> terms;
    for (const int32_t adapter : adapters) terms.push_back({AdapterId{adapter}, static_cast<float>(number)});
    voices_[number] = &memory_.join(std::move(terms));
  }
  // After those that were asked before it, in a round that the test begins.
  Residency acquire(int32_t number) { return memory_.acquire(*voices_.at(number)); }
  bool prefetch(int32_t number) { return memory_.prefetch(*voices_.at(number)); }
  void leave(int32_t number) { memory_.leave(*voices_.at(number)); }
  void release(int32_t number) { memory_.release(*voices_.at(number)); }
  void hand_back(int32_t number) { memory_.hand_back(*voices_.at(number)); }
  std::vector<AdapterId> loads() {
    std::vector<AdapterId> loads;
    drops_.clear();
    memory_.take_decisions(loads, drops_);
    return loads;
  }
  // A request comes, runs and ends.
  void serve(int32_t number, const std::vector<int32_t>& adapters) {
    join(number, adapters);
    EXPECT_EQ(acquire(number), Residency::kLoading);
    for (const AdapterId adapter : loads()) EXPECT_TRUE(memory_.arrive(adapter));
    EXPECT_EQ(acquire(number), Residency::kResident);
    release(number);
  }
  int64_t used() const { return memory_.book().used().bytes; }

  AdapterMemory memory_{25};
  std::map<int32_t, Voice*> voices_;  // of live requests
  std::vector<AdapterId> drops_;
};

TEST_F(AdapterMemoryTest, WhatGoesToTheDeviceStaysOnTheHost) {
  serve(1, {1});
  serve(2, {2});
  for (const int32_t key : {1, 3}) join(key, {key});
  EXPECT_EQ(acquire(1), Residency::kResident);
  hand_back(1);
  EXPECT_EQ(voices_.at(1)->holders, 0);
  EXPECT_EQ(acquire(3), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({3}));
  EXPECT_EQ(drops_, adapter_ids({2})) << "used later, but nobody waits for it";
  EXPECT_EQ(acquire(1), Residency::kResident);
  release(1);
  join(20, {1, 2});
  EXPECT_EQ(acquire(20), Residency::kNoRoom) << "the other load alone is in the way";
  EXPECT_TRUE(memory_.arrive(AdapterId{3}));
  leave(3);
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
  EXPECT_EQ(memory_.book().at(AdapterId{1}).used_by(lora::MemoryUse::kRequest), 1);
  release(20);
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
  leave(1);
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
    hand_back(key);
  }
  memory_.begin_round();
  for (const int32_t key : {2, 3}) {
    EXPECT_EQ(acquire(key), Residency::kResident);
    hand_back(key);
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
  leave(21);  // another still waits with this key
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
  release(1);
  EXPECT_FALSE(memory_.arrive(AdapterId{4})) << "the next of this key waits";
  EXPECT_EQ(acquire(1), Residency::kResident);
  EXPECT_THAT(loads(), IsEmpty());
}

TEST_F(AdapterMemoryTest, AClaimEndsWithTheLastWhoWaits) {
  join(20, {1, 2});
  join(20, {1, 2});
  EXPECT_TRUE(prefetch(20));
  for (const AdapterId adapter : loads()) EXPECT_TRUE(memory_.arrive(adapter));
  leave(20);
  EXPECT_FALSE(memory_.arrive(AdapterId{3}));
  leave(20);
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
  leave(20);
  leave(1);
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
  EXPECT_TRUE(memory_.pin(AdapterId{5}));
  join(20, {1, 2});
  EXPECT_EQ(acquire(20), Residency::kFailed);
  EXPECT_EQ(memory_.needed(*voices_.at(20)).bytes, 20);
  EXPECT_EQ(memory_.usable(*voices_.at(20)).bytes, 15);
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
  EXPECT_EQ(memory_.book().used().adapters, 3);
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
  release(20);
  EXPECT_EQ(acquire(21), Residency::kLoading);
  EXPECT_EQ(loads(), adapter_ids({3, 4}));
  EXPECT_EQ(drops_, adapter_ids({1}));
}

TEST_F(AdapterNumberTest, AMixOfMoreThanAreAllowedBesideThePinsFails) {
  join(20, {1, 2, 3, 4});
  EXPECT_EQ(acquire(20), Residency::kFailed);
  EXPECT_EQ(memory_.needed(*voices_.at(20)).adapters, 4);
  EXPECT_EQ(memory_.usable(*voices_.at(20)).adapters, 3);
  serve(5, {5});
  EXPECT_TRUE(memory_.pin(AdapterId{5}));
  join(21, {1, 2, 3});
  EXPECT_EQ(acquire(21), Residency::kFailed);
  join(22, {1, 2, 5});
  EXPECT_EQ(acquire(22), Residency::kLoading) << "its own pin is not in its way";
}

TEST_F(AdapterNumberTest, PinsLeaveOneForTheOthers) {
  for (int32_t adapter = 1; adapter <= 3; ++adapter) serve(adapter, {adapter});
  EXPECT_TRUE(memory_.pin(AdapterId{1}));
  EXPECT_TRUE(memory_.pin(AdapterId{2}));
  EXPECT_TRUE(memory_.pin(AdapterId{2})) << "once more";
  EXPECT_FALSE(memory_.pin(AdapterId{3}));
  EXPECT_EQ(AdapterMemory(1000, 1).book().pinnable().adapters, 0);
}

TEST_F(AdapterMemoryTest, EqualTermsAreOneVoice) {
  const std::vector<VoiceTerm> mix{{AdapterId{1}, 1.0F}, {AdapterId{2}, 0.5F}};
  Voice& voice = memory_.join(mix);
  EXPECT_EQ(&memory_.join(mix), &voice);
  EXPECT_EQ(voice.waiting, 2);
  EXPECT_EQ(voice.adapters, adapter_ids({1, 2}));
  memory_.leave(voice);
  EXPECT_EQ(memory_.voice_count(), 1u);
  memory_.leave(voice);
  EXPECT_EQ(memory_.voice_count(), 0u);
}

TEST_F(AdapterMemoryTest, OtherFactorsCompanyOrOrderAreAnotherVoice) {
  const AdapterId a{1}, b{2};
  const std::vector<VoiceTerm> all[] = {
      {{a, 1.0F}}, {{a, 0.5F}}, {{a, 1.0F}, {a, 0.5F}}, {{b, 1.0F}}, {{a, 1.0F}, {b, 0.5F}}, {{b, 0.5F}, {a, 1.0F}}};
  std::set<AdapterKey> keys;
  for (const auto& terms : all) EXPECT_TRUE(keys.insert(memory_.join(terms).key).second);
  EXPECT_FALSE(keys.contains(kBaseKey));
  EXPECT_EQ(memory_.voice_count(), std::size(all));
}

TEST_F(AdapterMemoryTest, AnAdapterNamedTwiceActsTwiceAndIsOne) {
  const Voice& voice = memory_.join({{AdapterId{1}, 0.75F}, {AdapterId{1}, 0.25F}});
  EXPECT_EQ(voice.terms.size(), 2u);
  EXPECT_EQ(voice.adapters, adapter_ids({1}));
}

// Each request may bring a factor that was never seen.
TEST_F(AdapterMemoryTest, KeysAreUsedAgain) {
  const Voice& other = memory_.join({{AdapterId{2}, 1.0F}});
  std::set<AdapterKey> keys;
  for (int i = 0; i < 50; ++i) {
    Voice& voice = memory_.join({{AdapterId{1}, 1.0F + 0.01F * static_cast<float>(i)}});
    EXPECT_NE(voice.key, other.key);
    keys.insert(voice.key);
    memory_.leave(voice);
  }
  EXPECT_EQ(keys.size(), 1u);
}

TEST_F(AdapterMemoryTest, WhoeverIsGoneLeavesNothingBehind) {
  join(20, {1, 2});
  EXPECT_TRUE(prefetch(20));
  leave(20);
  EXPECT_EQ(memory_.voice_count(), 0u);
  EXPECT_TRUE(memory_.loading(AdapterId{1}));
  EXPECT_TRUE(memory_.arrive(AdapterId{1}));
  memory_.fail(AdapterId{2});
  memory_.remove(AdapterId{1});
  memory_.remove(AdapterId{2});
  EXPECT_EQ(used(), 0);
}

}  // namespace
}  // namespace choral::sched
