// Answers whose thoughts have a limit: what the model would say up to it, then the end of thoughts, token by token; in streams,
// in several completions, beside other filters and behind a preemption.
#include <gmock/gmock.h>

#include "engine/tiny_model_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kLimit = 7;

class ThoughtLimitTest : public ::testing::Test {
 protected:
  static Request thinking(int seed, int max_tokens = 24) {
    Request request = greedy_request(random_prompt(20, static_cast<uint32_t>(seed)), max_tokens);
    request.thought_limit = {
        .max_tokens = kLimit, .begins = {"<think>"}, .ends = {"</think>"}, .forced_end = "</think>", .open = true};
    return request;
  }
  static Request free(Request request) {
    request.thought_limit = {};
    return request;
  }
  std::vector<int32_t> end() const {
    auto ids = llm_->tokenize("</think>", false);
    EXPECT_TRUE(ids.ok());
    return *ids;
  }
  // The tokens up to the limit are those without it, then come those of the end.
  void expect_ended(const std::vector<int32_t>& tokens, const std::vector<int32_t>& without) const {
    ASSERT_GE(tokens.size(), kLimit + end().size());
    EXPECT_EQ(std::vector<int32_t>(tokens.begin(), tokens.begin() + kLimit),
              std::vector<int32_t>(without.begin(), without.begin() + kLimit));
    EXPECT_EQ(std::vector<int32_t>(tokens.begin() + kLimit, tokens.begin() + kLimit + std::ssize(end())), end());
    EXPECT_NE(tokens, without);
  }

  std::unique_ptr<LLM> llm_ = load_or_die(tiny_options());
};

TEST_F(ThoughtLimitTest, TheEndComesTokenByToken) {
  ASSERT_GT(end().size(), 1u) << "this tokenizer spells the mark";
  const Request request = thinking(1);
  const auto outputs = llm_->generate({request, free(request)});
  ASSERT_TRUE(outputs[0].status.ok()) << outputs[0].status.to_string();
  expect_ended(outputs[0].completions[0].token_ids, outputs[1].completions[0].token_ids);
  EXPECT_THAT(outputs[0].completions[0].text, HasSubstr("</think>"));
}

TEST_F(ThoughtLimitTest, EachCompletionHasItsOwn) {
  Request request = thinking(2);
  request.sampling.n = 3;
  request.sampling.temperature = 1;
  request.sampling.seed = 5;
  request.sampling.dry_multiplier = 0.8F;
  request.sampling.xtc_probability = 0.5F;
  request.sampling.typical_p = 0.95F;
  const auto outputs = llm_->generate({request, free(request)});
  for (int i = 0; i < 3; ++i) expect_ended(outputs[0].completions[i].token_ids, outputs[1].completions[i].token_ids);
  EXPECT_NE(outputs[0].completions[0].token_ids, outputs[0].completions[1].token_ids);
}

TEST_F(ThoughtLimitTest, WhatMayNotComeEndsTheAnswerWithAnError) {
  Request request = thinking(3);
  request.sampling.logit_bias = {{end().front(), -std::numeric_limits<float>::infinity()}};
  const auto outputs = llm_->generate({request, free(request)});
  EXPECT_EQ(outputs[0].status.code(), Code::kInvalidArgument);
  EXPECT_THAT(outputs[0].status.message(), HasSubstr("end of thoughts"));
  EXPECT_TRUE(outputs[1].status.ok()) << outputs[1].status.to_string();
}

TEST_F(ThoughtLimitTest, AStreamAndAPreemptionChangeNothing) {
  auto options = tiny_options();
  options.max_model_len = 96;
  options.enable_prefix_caching = false;
  const auto probe = load_or_die(options);
  options.kv_cache_bytes = probe->info().kv_cache_bytes / (probe->info().kv_cache_tokens / 32) * 5;
  const auto tight = load_or_die(options);
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(thinking(10 + i, 60));
    auto& sampling = requests.back().sampling;
    sampling.temperature = 1;
    sampling.seed = static_cast<uint64_t>(i);
    sampling.dry_multiplier = 0.8F;
    sampling.dry_allowed_length = 1;
    sampling.repetition_penalty = 1.2F;
    sampling.penalty_last_n = 16;
    sampling.xtc_probability = 0.5F;
    sampling.typical_p = 0.9F;
    sampling.top_n_sigma = 2;
  }
  const auto together = tight->generate(requests);
  int preemptions = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_same_bits(together[i], llm_->generate({requests[i]}).front());
    preemptions += together[i].metrics.preemptions;
    auto stream = llm_->submit(requests[i]);
    ASSERT_TRUE(stream.ok());
    std::vector<int32_t> heard;
    for (StreamEvent event; (*stream)->next(event);) heard.insert(heard.end(), event.token_ids.begin(), event.token_ids.end());
    EXPECT_EQ(heard, together[i].completions[0].token_ids);
  }
  EXPECT_GT(preemptions, 0) << "the room was for fewer";
}

}  // namespace
}  // namespace choral::engine
