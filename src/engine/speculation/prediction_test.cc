#include "engine/speculation/prediction.h"

#include <gmock/gmock.h>

#include "engine/speculation/guesser.h"

namespace choral::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Ids = std::vector<int32_t>;

// Behind a prompt and the answer so far.
Ids guess(const Prediction& prediction, const Ids& prompt, const Ids& answer, size_t most, int32_t matched) {
  Ids text = prompt, out(most, -1);
  text.insert(text.end(), answer.begin(), answer.end());
  const auto guess = prediction.guess(text, static_cast<int32_t>(prompt.size()), out);
  EXPECT_EQ(guess.matched, matched);
  out.resize(static_cast<size_t>(guess.count));
  return out;
}

TEST(Prediction, TheAnswerBeginsAsItDoes) {
  const Prediction prediction({10, 11, 12, 13, 14});
  EXPECT_THAT(guess(prediction, {1, 2}, {10}, 3, 3), ElementsAre(11, 12, 13));
  EXPECT_THAT(guess(prediction, {1, 2}, {10, 11}, 2, 3), ElementsAre(12, 13));
  EXPECT_THAT(guess(prediction, {1, 2}, {11}, 3, 0), IsEmpty()) << "it began in another way";
  EXPECT_THAT(guess(prediction, {1, 2}, {}, 3, 0), IsEmpty());
}

TEST(Prediction, ItIsFoundAgainByTheLastTokens) {
  const Prediction prediction({10, 11, 12, 13, 14, 15, 16});
  EXPECT_THAT(guess(prediction, {1, 2}, {99, 98, 12, 13, 14}, 5, 3), ElementsAre(15, 16));
  EXPECT_THAT(guess(prediction, {1, 2}, {99, 98, 13, 14}, 5, 0), IsEmpty()) << "two tokens are too few";
  EXPECT_THAT(guess(prediction, {1, 11, 12}, {13, 14}, 5, 0), IsEmpty()) << "the answer has said too little";
}

TEST(Prediction, BehindItsEndNothingIsGuessed) {
  const Prediction prediction({10, 11, 12, 10, 11});
  EXPECT_THAT(guess(prediction, {1}, {10, 11, 12, 10, 11}, 4, 0), IsEmpty());
  EXPECT_THAT(guess(prediction, {1}, {10, 11, 12}, 4, 3), ElementsAre(10, 11)) << "it is not repeated";
  for (const Ids& few : {Ids{}, Ids{10}, Ids{10, 11}}) {
    const Prediction tiny(few);
    for (const Ids& answer : {Ids{10}, Ids{10, 11}, Ids{10, 11, 12}, Ids{10, 11, 12, 13}}) {
      const bool is_beginning = few.size() > answer.size();
      EXPECT_EQ(guess(tiny, {1}, answer, 4, is_beginning ? 3 : 0).empty(), !is_beginning);
    }
  }
}

// The tokens of the guess, and whether the prediction is counted for them.
std::pair<Ids, bool> guess(const Ids& prediction, const Ids& text, int32_t answer_begin) {
  Guesser guesser;
  guesser.set_prediction(std::make_shared<const Prediction>(prediction));
  Ids out(2, -1);
  out.resize(static_cast<size_t>(guesser.look_up(text, answer_begin, 100, out)));
  guesser.count(2, 1);
  EXPECT_EQ(guesser.counts().guessed, 2);
  EXPECT_EQ(guesser.counts().right, 1);
  EXPECT_EQ(guesser.counts().predicted_right * 2, guesser.counts().predicted);
  return {out, guesser.counts().predicted > 0};
}

TEST(Guesser, TheLongerMatchCountsAndOfEqualOnesThePredictions) {
  const Ids text{7, 8, 1, 2, 3, 50, 51, 7, 8, 1, 2, 3};
  EXPECT_EQ(guess({8, 1, 2, 3, 60, 61}, text, 6), std::pair(Ids({50, 51}), false)) << "five tokens against four";
  EXPECT_EQ(guess({7, 8, 1, 2, 3, 60, 61}, text, 6), std::pair(Ids({60, 61}), true));
  EXPECT_EQ(guess({9, 9, 9, 60, 61}, text, 6), std::pair(Ids({50, 51}), false));
  EXPECT_EQ(guess({2, 3, 4, 5}, {1, 2, 3, 4}, 0), std::pair(Ids({5}), true)) << "nothing else is there";
}

}  // namespace
}  // namespace choral::engine
