// Searches over likelihoods made by hand.
#include "engine/beam_search/beam_search.h"

#include <gtest/gtest.h>

namespace choral::engine {
namespace {

constexpr int32_t kStop = 9;

BeamRule rule_of(float length_penalty, EarlyStopping early_stopping) {
  return {.width = 2, .length_penalty = length_penalty, .early_stopping = early_stopping, .max_tokens = 100, .stop_ids = {kStop}};
}

using Offer = std::vector<kernels::TokenLogprob>;

// What follows the beams, whose answers so far are these. Empty: the search has ended.
std::vector<BeamSearch::Step> round_of(BeamSearch& search, const std::vector<std::vector<int32_t>>& answers,
                                       const std::vector<Offer>& offers, bool backwards = false) {
  const auto count = static_cast<int32_t>(offers.size());
  for (int32_t i = 0; i < count; ++i) {
    const int32_t beam = backwards ? count - 1 - i : i;
    search.offer(beam, offers[static_cast<size_t>(beam)]);
  }
  const std::vector<std::span<const int32_t>> tokens(answers.begin(), answers.end());
  const auto steps = search.advance(tokens);
  return {steps.begin(), steps.end()};
}

void expect_step(const BeamSearch::Step& step, int32_t from, int32_t token) {
  EXPECT_EQ(step.from, from);
  EXPECT_EQ(step.token, token);
}

TEST(BeamSearch, BeamsThatGoOnKeepTheirPlacesWhoeverOffersFirst) {
  for (const bool backwards : {false, true}) {
    BeamSearch search(rule_of(1, EarlyStopping::kNo));
    auto steps = round_of(search, {{}}, {{{5, -1}, {6, -2}, {7, -3}}});
    ASSERT_EQ(steps.size(), 2u);
    expect_step(steps[0], 0, 5);
    expect_step(steps[1], 0, 6);
    // The second beam's two are the best, so the first takes over one of them.
    steps = round_of(search, {{5}, {6}}, {{{1, -9}, {2, -10}, {3, -11}}, {{1, -0.5F}, {2, -1}, {3, -12}}}, backwards);
    ASSERT_EQ(steps.size(), 2u);
    expect_step(steps[0], 1, 2);
    expect_step(steps[1], 1, 1);
    // Equal ones go by beam and token: the first's two.
    steps = round_of(search, {{6, 2}, {6, 1}}, {{{4, -1}, {3, -1}, {8, -1}}, {{3, -1.5F}, {4, -1.5F}, {8, -1.5F}}}, backwards);
    ASSERT_EQ(steps.size(), 2u);
    expect_step(steps[0], 0, 3);
    expect_step(steps[1], 0, 4);
  }
}

TEST(BeamSearch, AnEndCountsAmongTheBestAloneAndEqualAnswersStayInTheirOrder) {
  BeamSearch search(rule_of(0, EarlyStopping::kYes));
  auto steps = round_of(search, {{}}, {{{5, -1}, {6, -2}, {kStop, -3}}});
  EXPECT_TRUE(search.answers().empty()) << "it was the third";
  steps = round_of(search, {{5}, {6}}, {{{kStop, -3.5F}, {1, -4}, {2, -5}}, {{3, -2}, {4, -4}, {kStop, -5}}});
  ASSERT_EQ(steps.size(), 2u);
  ASSERT_EQ(search.answers().size(), 1u);
  expect_step(steps[0], 0, 1);
  expect_step(steps[1], 1, 3);
  steps = round_of(search, {{5, 1}, {6, 3}}, {{{1, -9}, {2, -9}, {3, -9}}, {{kStop, -0.5F}, {4, -9}, {5, -9}}});
  EXPECT_TRUE(steps.empty());
  const auto answers = search.answers();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].tokens, (std::vector<int32_t>{5, kStop}));
  EXPECT_EQ(answers[1].tokens, (std::vector<int32_t>{6, 3, kStop}));
  EXPECT_EQ(answers[0].score, answers[1].score);
}

// The rounds that it takes, where the best beam is likely at first and unlikely from the third token on.
int rounds(float length_penalty, EarlyStopping early_stopping) {
  BeamSearch search(rule_of(length_penalty, early_stopping));
  const Offer unlikely{{1, -50}, {2, -50}, {3, -50}};
  round_of(search, {{}}, {{{5, -0.25F}, {kStop, -3}, {6, -20}}});
  const auto second = round_of(search, {{5}, {6}}, {{{7, -0.25F}, {kStop, -0.5F}, {8, -30}}, unlikely});
  EXPECT_EQ(search.answers().size(), 2u);
  if (second.empty()) return 2;
  return round_of(search, {{5, 7}, {5, 8}}, {{{7, -20}, {kStop, -25}, {8, -30}}, unlikely}).empty() ? 3 : 4;
}

TEST(BeamSearch, EndsWhenNoBetterAnswerIsHopedForByItsRule) {
  EXPECT_EQ(rounds(1, EarlyStopping::kYes), 2);
  EXPECT_EQ(rounds(1, EarlyStopping::kNo), 3);
  EXPECT_EQ(rounds(1, EarlyStopping::kNever), 4) << "an answer of 100 tokens may be better";
  // Longer ones lose: what a beam can come to at best is its score now.
  EXPECT_EQ(rounds(-1, EarlyStopping::kNo), 3);
  EXPECT_EQ(rounds(-1, EarlyStopping::kNever), 3);
}

}  // namespace
}  // namespace choral::engine
