#include "engine/sampling_check.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int32_t kCheckedVocab = 1000;

SamplingParams with_penalty(float penalty) {
  SamplingParams params;
  params.repetition_penalty = penalty;
  return params;
}

SamplingParams with_logprobs(int n, std::optional<int> logprobs, std::optional<int> prompt_logprobs = {}) {
  SamplingParams params;
  params.n = n;
  params.logprobs = logprobs;
  params.prompt_logprobs = prompt_logprobs;
  return params;
}

TEST(SamplingCheck, FiltersOfLlamaCppHaveRanges) {
  const auto refusal = [](auto change) {
    SamplingParams params;
    change(params);
    return check_sampling(params, kCheckedVocab).message();
  };
  EXPECT_EQ(refusal([](SamplingParams&) {}), "");
  EXPECT_THAT(refusal([](SamplingParams& p) { p.typical_p = 1.1F; }), HasSubstr("typical_p is 1.1"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.top_n_sigma = NAN; }), HasSubstr("top_n_sigma"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.xtc_probability = -0.1F; }), HasSubstr("xtc_probability"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.xtc_threshold = 2; }), HasSubstr("xtc_threshold"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.penalty_last_n = -2; }), HasSubstr("repeat_last_n"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.dry_multiplier = -1; }), HasSubstr("dry_multiplier"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.dry_base = 0.5F; }), HasSubstr("dry_base"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.dry_allowed_length = -1; }), HasSubstr("dry_allowed_length"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.dry_penalty_last_n = -2; }), HasSubstr("dry_penalty_last_n"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.dry_sequence_breakers.assign(33, "a"); }), HasSubstr("at most 32"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.dry_sequence_breakers = {std::string(41, 'a')}; }), HasSubstr("at most 40"));
  EXPECT_EQ(refusal([](SamplingParams& p) { p.logit_bias = {{1, -std::numeric_limits<float>::infinity()}}; }), "") << "never";
  EXPECT_THAT(refusal([](SamplingParams& p) {
                p.logit_bias = {{1, std::numeric_limits<float>::infinity()}};
              }),
              HasSubstr("logit_bias"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.logit_bias_texts = {{"a", 101.0F}}; }), HasSubstr("logit_bias"));
  EXPECT_THAT(refusal([](SamplingParams& p) { p.logit_bias_texts.assign(1025, {"a", 1.0F}); }), HasSubstr("at most 1024"));
}

TEST(SamplingCheck, NamedTokensOfLogprobsAreFewAndThere) {
  auto params = with_logprobs(1, 0);
  params.logprob_token_ids.assign(128, kCheckedVocab - 1);
  EXPECT_TRUE(check_sampling(params, kCheckedVocab).ok());
  EXPECT_TRUE(check_logprobs(params, kMostLogprobs / 129, 1).ok());
  EXPECT_EQ(check_logprobs(params, kMostLogprobs / 129 + 1, 1).code(), Code::kTooLarge);
  params.logprob_token_ids.push_back(0);
  EXPECT_EQ(check_sampling(params, kCheckedVocab).code(), Code::kTooLarge);
  for (const int32_t bad : {-1, kCheckedVocab}) {
    params.logprob_token_ids = {bad};
    EXPECT_THAT(check_sampling(params, kCheckedVocab).message(), HasSubstr("logprob_token_ids holds token id"));
  }
  params.logprob_token_ids = {0};
  params.logprobs.reset();
  EXPECT_THAT(check_sampling(params, kCheckedVocab).message(), HasSubstr("give both"));
}

TEST(SamplingCheck, APromptsLogprobsCountForEachCompletionThatTellsThem) {
  EXPECT_EQ(logprobs_given(with_logprobs(2, 4, 3), 10, 100), 2 * 10 * 5 + 2 * 100 * 4);
  EXPECT_EQ(logprobs_given(with_logprobs(2, {}), 10, 100), 0);
}

TEST(SamplingCheck, PenaltiesThatMakeInfiniteLogitsAreTheCallers) {
  for (const float penalty :
       {1e-45F, 0.0099F, 0.0F, -1.0F, 100.5F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Status status = check_sampling(with_penalty(penalty), kCheckedVocab);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << penalty;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("repetition_penalty"), HasSubstr("between 0.01 and 100")));
  }
  for (const float penalty : {0.01F, 1.0F, 1.3F, 100.0F}) {
    EXPECT_TRUE(check_sampling(with_penalty(penalty), kCheckedVocab).ok()) << penalty;
  }
}

TEST(SamplingCheck, AnAdaptersScaleIsBounded) {
  for (const float scale : {1e30F, -1000.5F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Status status = check_adapter_scale({.name = "sql", .scale = scale});
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << scale;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'sql'"), HasSubstr("between -1000 and 1000")));
  }
  for (const float scale : {0.0F, 1.0F, -0.5F, 1000.0F}) EXPECT_TRUE(check_adapter_scale({.name = "sql", .scale = scale}).ok());
}

TEST(SamplingCheck, ListsHaveALength) {
  SamplingParams params;
  params.stop_token_ids.assign(1025, 7);
  EXPECT_THAT(check_sampling(params, kCheckedVocab).message(),
              AllOf(HasSubstr("stop_token_ids has 1025"), HasSubstr("at most 1024")));
  params = {};
  params.allowed_token_ids.assign(kCheckedVocab + 1, 7);
  EXPECT_EQ(check_sampling(params, kCheckedVocab).code(), Code::kTooLarge);
  params = {};
  params.logit_bias.assign(kCheckedVocab + 1, {7, 1.0F});
  EXPECT_THAT(check_sampling(params, kCheckedVocab).message(),
              AllOf(HasSubstr("logit_bias has 1001"), HasSubstr("at most 1000")));
  params.logit_bias.resize(kCheckedVocab);
  EXPECT_TRUE(check_sampling(params, kCheckedVocab).ok());
}

TEST(SamplingCheck, LogProbabilitiesOfOneAnswerAreBounded) {
  const Status status = check_logprobs(with_logprobs(128, 100), 2048, 1);
  EXPECT_EQ(status.code(), Code::kTooLarge);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("n 128"), HasSubstr("max_tokens 2048"), HasSubstr("logprobs 100"),
                                      HasSubstr("26476544"), HasSubstr("at most 4194304")));
  EXPECT_EQ(check_logprobs(with_logprobs(128, 100), 1 << 30, 1).code(), Code::kTooLarge) << "no wrap-around";
  EXPECT_EQ(check_logprobs(with_logprobs(1, 0), (1 << 22) + 1, 1).code(), Code::kTooLarge) << "the chosen token's counts";
  EXPECT_TRUE(check_logprobs(with_logprobs(1, 0), 1 << 22, 1).ok());
  EXPECT_TRUE(check_logprobs(with_logprobs(1, 20), 131072, 1).ok());
  EXPECT_TRUE(check_logprobs(with_logprobs(16, 20), 8192, 1).ok());
  EXPECT_TRUE(check_logprobs(with_logprobs(128, {}), 1 << 24, 1 << 24).ok()) << "nothing was asked for";
}

TEST(SamplingCheck, LogProbabilitiesOfAPromptAreBounded) {
  const Status status = check_logprobs(with_logprobs(1, {}, 100), 1, 131072);
  EXPECT_EQ(status.code(), Code::kTooLarge);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("prompt_logprobs 100"), HasSubstr("131072 tokens"), HasSubstr("4194304")));
  EXPECT_TRUE(check_logprobs(with_logprobs(128, {}, 20), 1, 131072).ok()) << "given once, whatever n is";
}

}  // namespace
}  // namespace choral::engine
