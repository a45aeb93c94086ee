#include "engine/speculation/prompt_lookup.h"

#include <gmock/gmock.h>

#include <random>

namespace choral::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Guess {
  std::vector<int32_t> tokens;
  int32_t matched = 0;
};

Guess guess(PromptLookup& lookup, const std::vector<int32_t>& text, size_t most) {
  Guess guess{std::vector<int32_t>(most)};
  guess.matched = lookup.guess(text, guess.tokens);
  if (guess.matched == 0) guess.tokens.clear();
  return guess;
}

Guess guess(const std::vector<int32_t>& text, size_t most) {
  PromptLookup lookup;
  lookup.make_room(100);
  return guess(lookup, text, most);
}

TEST(PromptLookup, WhatFollowedBeforeFollowsAgain) {
  const std::vector<int32_t> text{1, 2, 3, 4, 5, 6, 9, 2, 3, 4};
  EXPECT_THAT(guess(text, 5).tokens, ElementsAre(5, 6, 9, 2, 3));
  EXPECT_EQ(guess(text, 5).matched, 3);
}

TEST(PromptLookup, WithoutAnEarlierPlaceThereIsNoGuess) {
  EXPECT_THAT(guess({}, 4).tokens, IsEmpty());
  EXPECT_THAT(guess({1, 2, 3}, 4).tokens, IsEmpty());
  EXPECT_THAT(guess({1, 2, 3, 4, 5, 3, 4}, 4).tokens, IsEmpty()) << "two tokens are too few";
}

TEST(PromptLookup, TheLongestMatchGoesBeforeTheLatest) {
  const auto longest = guess({8, 1, 2, 3, 50, 9, 1, 2, 3, 60, 8, 1, 2, 3}, 1);
  EXPECT_THAT(longest.tokens, ElementsAre(50));
  EXPECT_EQ(longest.matched, 4);
}

TEST(PromptLookup, OfEqualMatchesTheLatestCounts) {
  EXPECT_THAT(guess({1, 2, 3, 50, 1, 2, 3, 60, 7, 1, 2, 3}, 1).tokens, ElementsAre(60));
}

TEST(PromptLookup, WhatRepeatsGoesOn) {
  EXPECT_THAT(guess({5, 5, 5, 5, 5}, 4).tokens, ElementsAre(5, 5, 5, 5));
  EXPECT_THAT(guess({1, 2, 3, 1, 2, 3, 1}, 5).tokens, ElementsAre(2, 3, 1, 2, 3));
}

TEST(PromptLookup, WithoutRoomThereIsNoGuessAndBeyondItTheBeginningIsKnown) {
  PromptLookup none, some;
  std::vector<int32_t> text{1, 2, 3, 50, 4, 5, 6, 7, 8, 9, 1, 2, 3};
  EXPECT_THAT(guess(none, text, 1).tokens, IsEmpty());
  some.make_room(5);
  EXPECT_THAT(guess(some, text, 1).tokens, ElementsAre(50));
  text.insert(text.end(), {60, 4, 1, 2, 3});
  EXPECT_THAT(guess(some, text, 1).tokens, ElementsAre(50)) << "the later place is not known";
}

// Beside a search of everything, over texts that grow token by token.
TEST(PromptLookup, FindsWhatASearchFinds) {
  std::mt19937 random(3);
  for (const uint32_t words : {2U, 3U, 6U}) {
    PromptLookup lookup;
    lookup.make_room(1000);
    std::vector<int32_t> text;
    int found = 0;
    for (int i = 0; i < 600; ++i) {
      text.push_back(static_cast<int32_t>(random() % words));
      const auto last = guess(lookup, text, 1);
      const auto same_at = [&text](size_t place) {
        int32_t same = 0;
        while (same < PromptLookup::kMostMatched && static_cast<size_t>(same) <= place &&
               text[place - static_cast<size_t>(same)] == text[text.size() - 1 - static_cast<size_t>(same)])
          ++same;
        return same;
      };
      int32_t longest = 0;
      bool is_there = false;  // a place of that match, with that token behind it
      for (size_t place = 0; place + 1 < text.size(); ++place) {
        longest = std::max(longest, same_at(place));
        is_there |= last.matched > 0 && same_at(place) == last.matched && text[place + 1] == last.tokens[0];
      }
      EXPECT_LE(last.matched, longest);
      EXPECT_EQ(last.matched > 0, longest >= PromptLookup::kGram) << i;
      EXPECT_EQ(is_there, last.matched > 0);
      found += last.matched == longest ? 1 : 0;
    }
    EXPECT_GT(found, 150) << "mostly the longest, although the latest places alone are looked at";
  }
}

}  // namespace
}  // namespace choral::engine
