// What a row's rule does to its logits, and that nothing but its own rule, tokens and place do.
#include "engine/sampler.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "platform/cpu_context_test.h"

namespace choral::engine {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kVocab = 8;

// A row whose most likely tokens are 3, 5, 1, 0, in this order.
const std::vector<float> kLogits = {1, 2, -4, 4, -5, 3, -6, -7};

struct Row {
  SamplingRule rule = greedy();
  std::vector<int32_t> tokens = {7, 6};
  int32_t prompt_count = 2;
  std::vector<float> logits = kLogits;
  std::vector<uint32_t> mask = {};

  static SamplingRule greedy() {
    SamplingRule rule;
    rule.settings.temperature = 0;
    return rule;
  }
};

class SamplerTest : public ::testing::Test {
 protected:
  struct Sampled {
    std::vector<SampledToken> tokens;
    std::vector<std::vector<kernels::TokenLogprob>> tops;
  };
  Sampled sample(const std::vector<Row>& rows) {
    Sampled sampled;
    sampled.tokens.resize(rows.size());
    std::vector<float> logits;
    std::vector<SampledRow> wanted;
    for (const auto& row : rows) {
      logits.insert(logits.end(), row.logits.begin(), row.logits.end());
      sampled.tops.emplace_back(row.rule.top_count());
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      wanted.push_back({.rule = &rows[i].rule,
                        .vocab = kVocab,
                        .tokens = rows[i].tokens,
                        .prompt_count = rows[i].prompt_count,
                        .mask = rows[i].mask,
                        .out = &sampled.tokens[i],
                        .top = sampled.tops[i]});
    }
    sampler_.sample({logits.data(), std::ssize(rows), kVocab}, wanted);
    return sampled;
  }
  int32_t token_of(const Row& row) { return sample({row}).tokens[0].token; }

  platform::testing::CpuContext cpu_{2};
  Sampler sampler_{*cpu_, kVocab};
};

TEST_F(SamplerTest, GreedyTakesTheMostLikelyThatIsAllowed) {
  Row row;
  EXPECT_EQ(token_of(row), 3);
  row.rule.allowed_ids = {0, 1, 5};
  EXPECT_EQ(token_of(row), 5);
  row.rule.bias = {{0, 100.0F}, {3, 200.0F}};
  EXPECT_EQ(token_of(row), 0) << "what is not allowed is not brought back";
}

TEST_F(SamplerTest, StopsAreBannedBeforeMinTokensOnly) {
  Row row;
  row.rule.stop_ids = {3, 5};
  row.rule.min_tokens = 2;
  EXPECT_EQ(token_of(row), 1);
  row.tokens = {7, 6, 0};
  EXPECT_EQ(token_of(row), 1) << "the second output";
  row.tokens = {7, 6, 0, 0};
  EXPECT_EQ(token_of(row), 3);
}

TEST_F(SamplerTest, ABadWordIsBannedWhereItWouldEnd) {
  Row row;
  row.rule.bad_words = {{7, 6, 3}, {1, 5}};
  EXPECT_EQ(token_of(row), 5) << "7 6 would become 7 6 3, though both are of the prompt";
  row.tokens = {7, 6, 0};
  EXPECT_EQ(token_of(row), 3);
  row.rule.bad_words = {{3}};
  EXPECT_EQ(token_of(row), 5);
}

TEST_F(SamplerTest, AMaskedTokenIsNotBroughtBack) {
  Row row;
  row.mask = {1U << 0 | 1U << 1 | 1U << 6};
  EXPECT_EQ(token_of(row), 1);
  row.rule.bias = {{3, 100.0F}, {6, 9.5F}};
  EXPECT_EQ(token_of(row), 6) << "among what it allows, bias counts";
  row.rule.penalties.frequency = 2;
  row.tokens = {7, 6, 6};
  EXPECT_EQ(token_of(row), 1);
  row.rule.logprobs = 1;
  EXPECT_EQ(sample({row}).tops[0][0].token, 3) << "log-probabilities are the model's";
  row.mask = {0};
  EXPECT_EQ(sample({row}).tokens[0].token, -1);
  EXPECT_FALSE(sample({row}).tokens[0].status.ok());
}

TEST_F(SamplerTest, PenaltiesLookAtSoManyLastTokens) {
  Row row;
  row.rule.penalties.repetition = 10;
  row.tokens = {3, 5, 6, 6};
  EXPECT_EQ(token_of(row), 1);
  row.rule.penalty_last_n = 3;
  EXPECT_EQ(token_of(row), 3) << "3 lies before them";
  row.rule.penalty_last_n = 0;
  EXPECT_EQ(token_of(row), 3) << "off";
  row.rule.penalties = {.frequency = 5};
  row.tokens = {7, 6, 3, 3, 6};
  row.rule.penalty_last_n = 2;
  EXPECT_EQ(token_of(row), 5) << "one of the two 3";
  row.rule.penalty_last_n = 4;
  row.prompt_count = 4;
  EXPECT_EQ(token_of(row), 3) << "they are the prompt's, and frequency is the answer's";
}

TEST_F(SamplerTest, DryHoldsARepetitionBack) {
  Row row;
  row.tokens = {0, 1, 3, 6, 0, 1};  // 3 would go on with "0 1"
  row.rule.dry = {.multiplier = 2};
  EXPECT_EQ(token_of(row), 5);
  row.rule.dry_breakers = {{1, {}}};
  EXPECT_EQ(token_of(row), 3);
  row.rule.dry_breakers = {};
  row.mask = {1U << 3};
  EXPECT_EQ(token_of(row), 3) << "it is all that may come";
}

TEST_F(SamplerTest, XtcThrowsItsDiceForEachPosition) {
  Row row;
  row.rule.settings = {.temperature = 0.01F, .xtc_threshold = 0.05F};
  row.rule.seed = 7;
  row.rule.xtc_probability = 0.5F;
  const auto likeliest_of = [&](float probability) {
    row.rule.xtc_probability = probability;
    int count = 0;
    for (size_t outputs = 0; outputs < 400; ++outputs) {
      row.tokens.assign(2 + outputs, 0);
      count += token_of(row) == 3 ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(likeliest_of(0), 400);
  EXPECT_EQ(likeliest_of(1), 0);
  EXPECT_NEAR(likeliest_of(0.25F), 300, 40);
  row.rule.settings.temperature = 0;
  EXPECT_EQ(likeliest_of(1), 400) << "greedy ends before it";
}

TEST_F(SamplerTest, AMaskIsItsRowsAlone) {
  std::vector<Row> rows(3);
  rows[1].mask = {1U << 2};
  const auto sampled = sample(rows);
  EXPECT_EQ(sampled.tokens[0].token, 3);
  EXPECT_EQ(sampled.tokens[1].token, 2);
  EXPECT_EQ(sampled.tokens[2].token, 3);
}

TEST_F(SamplerTest, PenaltiesTellPromptFromOutput) {
  Row row;
  row.tokens = {3, 3, 3, 0};
  row.prompt_count = 3;
  row.rule.penalties.frequency = 1.5F;
  EXPECT_EQ(token_of(row), 3) << "the prompt's do not count";
  row.prompt_count = 2;
  EXPECT_EQ(token_of(row), 5) << "4 - 1.5 is less than 3";
  row.prompt_count = 4;
  row.rule.penalties = {.repetition = 2.0F};
  EXPECT_EQ(token_of(row), 5) << "the prompt's do";
}

TEST_F(SamplerTest, LogprobsAreThoseOfTheUntouchedRow) {
  Row row;
  row.rule.logprobs = 2;
  row.rule.bias = {{2, 100.0F}};
  const auto sampled = sample({row});
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(static_cast<double>(logit));
  EXPECT_EQ(sampled.tokens[0].token, 2);
  EXPECT_NEAR(sampled.tokens[0].logprob, -4 - std::log(sum), 1e-5);
  EXPECT_EQ(sampled.tokens[0].top_count, 2);
  EXPECT_EQ(sampled.tops[0][0].token, 3);
  EXPECT_EQ(sampled.tops[0][1].token, 5);
  const auto prompt = sampler_.logprobs_of(kLogits, 1, 3);
  EXPECT_EQ(prompt.chosen.token_id, 1);
  EXPECT_NEAR(prompt.chosen.logprob, 2 - std::log(sum), 1e-5);
  ASSERT_EQ(prompt.top.size(), 3U);
  EXPECT_EQ(prompt.top[0].logprob, sampled.tops[0][0].logprob);
}

TEST_F(SamplerTest, TheRankOfAPromptsTokenIsItsPlaceAmongTheMostLikely) {
  const std::vector<float> logits{1, 3, 2, 3, -1, 2};  // ties go to the lower id
  const std::vector<int32_t> in_order{1, 3, 2, 5, 0, 4};
  for (int32_t rank = 1; rank <= 6; ++rank) {
    const auto position = sampler_.logprobs_of(logits, in_order[static_cast<size_t>(rank) - 1], 6);
    EXPECT_EQ(position.rank, rank);
    EXPECT_EQ(position.top[static_cast<size_t>(rank) - 1].token_id, position.chosen.token_id);
    EXPECT_EQ(sampler_.logprobs_of(logits, position.chosen.token_id, 0).rank, rank);
  }
}

TEST_F(SamplerTest, NamedTokensStandInPlaceOfTheMostLikelyOnes) {
  Row row;
  row.rule.logprobs = 3;
  const auto likely = sample({row});
  row.rule.logprob_ids = {7, 5, 7, 1'000'000};
  const auto named = sample({row, row});
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(named.tokens[i].logprob, likely.tokens[0].logprob);
    EXPECT_EQ(named.tokens[i].top_count, 4);
    EXPECT_EQ(named.tops[i][0].token, 7);
    EXPECT_EQ(named.tops[i][1].token, 5);
    EXPECT_EQ(named.tops[i][1].logprob, likely.tops[0][1].logprob);
    EXPECT_EQ(named.tops[i][2].logprob, named.tops[i][0].logprob);
    EXPECT_EQ(named.tops[i][3].logprob, -std::numeric_limits<float>::infinity()) << "no token of this row";
  }
}

TEST_F(SamplerTest, ANaNFailsItsRowAlone) {
  std::vector<Row> rows(3);
  rows[1].logits[4] = std::numeric_limits<float>::quiet_NaN();
  rows[2].rule.allowed_ids = {1};
  const auto sampled = sample(rows);
  EXPECT_EQ(sampled.tokens[0].token, 3);
  EXPECT_EQ(sampled.tokens[1].token, -1);
  EXPECT_EQ(sampled.tokens[1].status.code(), Code::kInternal);
  EXPECT_TRUE(sampled.tokens[2].status.ok());
  EXPECT_EQ(sampled.tokens[2].token, 1);
}

TEST_F(SamplerTest, ADrawIsThatOfItsSeedAndPlaceInAnyBatch) {
  std::vector<Row> rows;
  for (int i = 0; i < 64; ++i) {
    Row row;
    row.rule.settings.temperature = 3;
    row.rule.seed = static_cast<uint64_t>(i % 4);
    row.tokens.resize(2 + static_cast<size_t>(i / 4), i % 8);  // what stands there does not matter
    rows.push_back(row);
  }
  const auto together = sample(rows);
  std::vector<int> seen(kVocab);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(together.tokens[i].token, token_of(rows[i])) << i;
    ++seen[together.tokens[i].token];
  }
  EXPECT_GE(std::count_if(seen.begin(), seen.end(), [](int n) { return n > 0; }), 3) << "other seeds and places draw others";
}

}  // namespace
}  // namespace choral::engine
