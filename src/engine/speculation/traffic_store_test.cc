#include "engine/speculation/traffic_store.h"

#include <gmock/gmock.h>

#include <numeric>

namespace choral::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Ids = std::vector<int32_t>;

cache::PrefixRoot group(std::string_view salt) { return cache::make_prefix_root({}, salt); }

Ids guess(TrafficStore& store, std::string_view salt, const Ids& text, size_t most = 4, int32_t more_than = 0) {
  Ids out(most, -7);
  const auto guess = store.guess(group(salt), text, out, more_than);
  EXPECT_EQ(guess.count > 0, guess.matched > more_than);
  out.resize(static_cast<size_t>(guess.count));
  return out;
}

Ids counting(int32_t from, int32_t count) {
  Ids ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), from);
  return ids;
}

TEST(TrafficStore, WhatAnAnswerSaidIsGuessedInTheNext) {
  TrafficStore store(1 << 20);
  store.add(group("a"), {{1, 2, 3, 4, 50, 51, 52, 53, 54}}, 4);
  EXPECT_THAT(guess(store, "a", {9, 9, 50, 51, 52}), ElementsAre(53, 54)) << "as far as it went";
  EXPECT_THAT(guess(store, "a", {2, 3, 4}), ElementsAre(50, 51, 52, 53)) << "its beginning is found by the prompt's end";
  EXPECT_THAT(guess(store, "a", {2, 3, 4}, 2), ElementsAre(50, 51));
  EXPECT_THAT(guess(store, "a", {7, 51, 52}), IsEmpty());
  EXPECT_THAT(guess(store, "a", {52, 53, 54}), IsEmpty()) << "nothing followed";
  EXPECT_THAT(guess(store, "a", {9, 50, 51, 52}, 4, 3), IsEmpty()) << "no more than three are the same";
}

TEST(TrafficStore, OthersAnswersAreNotFound) {
  TrafficStore store(1 << 20);
  store.add(group("a"), counting(10, 20), 4);
  EXPECT_THAT(guess(store, "b", {20, 21, 22}), IsEmpty());
  EXPECT_THAT(guess(store, "a", {20, 21, 22}), ElementsAre(23, 24, 25, 26));
}

TEST(TrafficStore, OneAnswerDoesNotGoOnAsTheNext) {
  TrafficStore store(1 << 20);
  store.add(group(""), counting(10, 10), 0);
  store.add(group(""), counting(40, 10), 0);
  EXPECT_THAT(guess(store, "", {17, 18, 19}), IsEmpty());
  EXPECT_THAT(guess(store, "", {16, 17, 18}), ElementsAre(19));
  EXPECT_THAT(guess(store, "", {40, 41, 42}, 2), ElementsAre(43, 44));
}

TEST(TrafficStore, TheLongerMatchCountsAndOfEqualOnesTheLatest) {
  TrafficStore store(1 << 20);
  store.add(group(""), {{8, 1, 2, 3, 60, 61, 62, 63}}, 0);
  store.add(group(""), {{9, 1, 2, 3, 70, 71, 72, 73}}, 0);
  EXPECT_THAT(guess(store, "", {1, 2, 3}, 1), ElementsAre(70));
  EXPECT_THAT(guess(store, "", {8, 1, 2, 3}, 1), ElementsAre(60));
}

TEST(TrafficStore, TheLatestAnswersStay) {
  TrafficStore store(1 << 20);
  for (int32_t i = 0; i < 100; ++i) store.add(group(""), counting(1000 * i, 900), 0);
  EXPECT_THAT(guess(store, "", {99'100, 99'101, 99'102}, 1), ElementsAre(99'103));
  EXPECT_THAT(guess(store, "", {90'100, 90'101, 90'102}, 1), ElementsAre(90'103)) << "some thousands of tokens back";
  EXPECT_THAT(guess(store, "", {100, 101, 102}), IsEmpty());
  EXPECT_LT(store.size_bytes(), 1 << 20);
}

TEST(TrafficStore, MemoryIsBoundedAndWhoWasLongestAwayGoes) {
  constexpr int64_t kMost = 256 * 1024;
  TrafficStore store(kMost);
  for (int32_t i = 0; i < 200; ++i) {
    store.add(group(std::to_string(i)), counting(100, 30), 0);
    EXPECT_LE(store.size_bytes(), kMost);
    EXPECT_THAT(guess(store, "0", {110, 111, 112}, 1), ElementsAre(113)) << "it is asked again and again";
  }
  EXPECT_THAT(guess(store, "199", {110, 111, 112}, 1), ElementsAre(113));
  EXPECT_THAT(guess(store, "1", {110, 111, 112}, 1), IsEmpty());
  TrafficStore none(100);
  none.add(group(""), counting(1, 100), 0);
  EXPECT_EQ(none.size_bytes(), 0);
  EXPECT_THAT(guess(none, "", {11, 12, 13}), IsEmpty());
}

TEST(TrafficStore, AVeryLongAnswerIsKeptAtItsBeginning) {
  TrafficStore store(1 << 22);
  store.add(group(""), counting(0, 100'000), 0);
  EXPECT_THAT(guess(store, "", {5, 6, 7}, 1), ElementsAre(8));
  EXPECT_THAT(guess(store, "", {90'005, 90'006, 90'007}), IsEmpty());
}

}  // namespace
}  // namespace choral::engine
