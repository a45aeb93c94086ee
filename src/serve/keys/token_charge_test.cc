#include "serve/keys/token_charge.h"

#include <gtest/gtest.h>

#include <limits>

namespace choral::serve {
namespace {

Request asking(int n, int best_of, int max_tokens) {
  Request request;
  request.prompt_token_ids = {1, 2, 3};
  request.sampling.n = n;
  request.sampling.best_of = best_of;
  request.sampling.max_tokens = max_tokens;
  return request;
}

TEST(TokenCharge, BeforeItStartsAllThatMayBeMadeCounts) {
  EXPECT_EQ(most_tokens(asking(2, 0, 10), {}, 100), 3 + 20);
  EXPECT_EQ(most_tokens(asking(1, 128, 10), {}, 100), 3 + 1280);
  EXPECT_EQ(most_tokens(asking(1, 0, 0), {}, 100), 3 + 100);
  auto search = asking(2, 0, 10);
  search.sampling.beams = {.wanted = true, .width = 8};
  EXPECT_EQ(most_tokens(search, {}, 100), 3 + 80) << "each beam's";
  auto embedding = asking(1, 0, 10);
  embedding.embedding = true;
  EXPECT_EQ(most_tokens(embedding, {}, 100), 3);
  auto text = asking(1, 0, 10);
  text.prompt_token_ids.clear();
  text.prompt = std::string(40, 'x');
  EXPECT_EQ(most_tokens(text, {}, 100), 10 + 10);
}

TEST(TokenCharge, NumbersThatTheEngineRefusesStayInRange) {
  constexpr int kMost = std::numeric_limits<int>::max(), kLeast = std::numeric_limits<int>::min();
  EXPECT_EQ(most_tokens(asking(kMost, 0, 10), {}, 100), 3 + 1280);
  EXPECT_EQ(most_tokens(asking(1, kMost, kMost), {}, 100), 3 + 128 * 100) << "what fits";
  EXPECT_EQ(most_tokens(asking(kLeast, kLeast, kLeast), {}, 100), 3 + 100);
}

TEST(TokenCharge, EachPromptOfABodyCountsWithItsAnswers) {
  Request body;
  body.sampling.n = 2;
  body.sampling.max_tokens = 10;
  const std::vector<Prompt> prompts{std::vector<int32_t>{1, 2, 3}, std::string(40, 'x'), std::vector<int32_t>{4}};
  EXPECT_EQ(most_tokens(body, prompts, 100), 3 + 10 + 1 + 3 * 20);
  body.embedding = true;
  EXPECT_EQ(most_tokens(body, prompts, 100), 3 + 10 + 1);
}

TEST(TokenCharge, PromptsAreReadNoFurtherThanTheyAreCounted) {
  auto request = asking(1, 0, 10);
  EXPECT_EQ(tokens_to_read(request, {}, 100), 3);
  EXPECT_EQ(tokens_to_read(request, {}, 2), 2);
  const std::vector<Prompt> prompts{std::vector<int32_t>{1, 2, 3}, std::string(4000, 'x'), std::string(4000, 'x')};
  EXPECT_EQ(tokens_to_read(Request(), prompts, 100), 3 + 100 + 100);
}

TEST(TokenCharge, WhatWasComputedIsUsed) {
  AnswerFacts facts;
  facts.prompt_tokens = 30;
  EXPECT_EQ(used_tokens(facts), 0) << "it waited";
  facts.begun = true;
  EXPECT_EQ(used_tokens(facts), 30);
  facts.made_tokens = 12;
  EXPECT_EQ(used_tokens(facts), 42);
}

}  // namespace
}  // namespace choral::serve
