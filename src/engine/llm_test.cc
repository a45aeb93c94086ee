// The public API on a tiny model: streaming, cancelling, seeds, stops, penalties, refusals.
#include "engine/tiny_model_test.h"

namespace choral::engine {
namespace {

class LlmTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { llm_ = load_or_die(tiny_options()).release(); }
  static void TearDownTestSuite() { delete llm_; }
  static RequestOutput run(const Request& request) { return llm_->generate({request}).front(); }
  static LLM* llm_;
};
LLM* LlmTest::llm_ = nullptr;

Request sampled_request(uint64_t seed) {
  auto request = greedy_request(random_prompt(20, 5), 40);
  request.sampling.temperature = 1.5f;
  request.sampling.seed = seed;
  return request;
}

TEST_F(LlmTest, StreamEqualsGenerate) {
  const auto request = greedy_request(random_prompt(20, 1), 30);
  const auto whole = run(request);
  auto stream = llm_->submit(request);
  ASSERT_TRUE(stream.ok()) << stream.status().to_string();
  std::string text;
  std::vector<int32_t> ids;
  FinishReason reason = FinishReason::kNone;
  for (StreamEvent event; (*stream)->next(event);) {
    text += event.text;
    ids.insert(ids.end(), event.token_ids.begin(), event.token_ids.end());
    reason = event.finish_reason;
  }
  EXPECT_EQ(text, whole.completions[0].text);
  EXPECT_EQ(ids, whole.completions[0].token_ids);
  EXPECT_EQ(reason, FinishReason::kLength);
}

TEST_F(LlmTest, SameSeedSameTextInAnyBatch) {
  const auto alone = run(sampled_request(7));
  std::vector<Request> crowd;
  for (uint64_t seed = 0; seed < 12; ++seed) crowd.push_back(sampled_request(seed));
  const auto outputs = llm_->generate(crowd);
  expect_same_bits(alone, outputs[7]);
  EXPECT_NE(outputs[7].completions[0].token_ids, outputs[8].completions[0].token_ids);
}

TEST_F(LlmTest, SeveralCompletionsDiffer) {
  auto request = sampled_request(3);
  request.sampling.n = 3;
  const auto output = run(request);
  ASSERT_EQ(output.completions.size(), 3u);
  EXPECT_NE(output.completions[0].token_ids, output.completions[1].token_ids);
  EXPECT_NE(output.completions[1].token_ids, output.completions[2].token_ids);
  expect_same_bits(run(sampled_request(3)), output);  // the first is what n = 1 gives
}

TEST_F(LlmTest, CancelFreesEverything) {
  auto request = greedy_request(random_prompt(20, 2), 450);
  auto stream = llm_->submit(request);
  ASSERT_TRUE(stream.ok());
  StreamEvent event;
  ASSERT_TRUE((*stream)->next(event));
  (*stream)->cancel();
  const auto output = (*stream)->wait();
  EXPECT_EQ(output.completions[0].finish_reason, FinishReason::kCancelled);
  EXPECT_LT(output.completions[0].token_ids.size(), 450u);
  EXPECT_EQ(stats_at_rest(*llm_).kv_blocks_free, llm_->stats().kv_blocks_total);
}

TEST_F(LlmTest, StopTokenEndsTheAnswer) {
  auto request = greedy_request(random_prompt(20, 1), 30);
  const auto free_run = run(request).completions[0];
  request.sampling.stop_token_ids = {free_run.token_ids[4]};
  const auto output = run(request).completions[0];
  EXPECT_EQ(output.finish_reason, FinishReason::kStop);
  EXPECT_EQ(output.stop_reason, std::to_string(free_run.token_ids[4]));
  EXPECT_LE(output.token_ids.size(), 5u);
  request.sampling.min_tokens = 10;
  EXPECT_GE(run(request).completions[0].token_ids.size(), 10u);
}

TEST_F(LlmTest, LogitBiasAndAllowedIds) {
  auto request = greedy_request(random_prompt(20, 1), 8);
  request.sampling.allowed_token_ids = {11, 12, 13};
  const auto allowed = run(request).completions[0].token_ids;
  for (const int32_t id : allowed) EXPECT_TRUE(id >= 11 && id <= 13) << id;
  request.sampling.allowed_token_ids.clear();
  request.sampling.logit_bias = {{77, 100.0f}};
  EXPECT_EQ(run(request).completions[0].token_ids, std::vector<int32_t>(8, 77));
}

TEST_F(LlmTest, ATextIsBiasedTokenByToken) {
  auto request = greedy_request(random_prompt(20, 2), 8);
  const auto ids = *llm_->tokenize("hello", false);
  request.sampling.logit_bias_texts = {{"hello", 100.0F}};
  const auto tokens = run(request).completions[0].token_ids;
  for (const int32_t token : tokens) EXPECT_NE(std::find(ids.begin(), ids.end(), token), ids.end());
  request.sampling.logit_bias_texts = {};
  for (const int32_t id : ids) request.sampling.logit_bias.emplace_back(id, 100.0F);
  EXPECT_EQ(run(request).completions[0].token_ids, tokens);
}

// The most tokens that stand in the answer twice, one after the other.
int longest_repeat(const std::vector<int32_t>& tokens) {
  int longest = 0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      int length = 0;
      while (length <= static_cast<int>(j) && tokens[j - static_cast<size_t>(length)] == tokens[i - static_cast<size_t>(length)])
        ++length;
      longest = std::max(longest, length);
    }
  }
  return longest;
}

TEST_F(LlmTest, DryEndsARepetitionUnlessItIsABreakers) {
  auto request = greedy_request(random_prompt(20, 2), 60);
  request.sampling.logit_bias = {{77, 100.0F}};
  ASSERT_EQ(longest_repeat(run(request).completions[0].token_ids), 59);
  request.sampling.dry_multiplier = 100;
  request.sampling.dry_base = 100;
  EXPECT_LT(longest_repeat(run(request).completions[0].token_ids), 6);
  request.sampling.dry_sequence_breakers = {llm_->detokenize({77})};
  EXPECT_EQ(longest_repeat(run(request).completions[0].token_ids), 59);
}

TEST_F(LlmTest, AnAnswerWhoseBansExcludeEachOtherIsNoDamage) {
  auto request = greedy_request(random_prompt(20, 1), 8);
  request.sampling.allowed_token_ids = request.sampling.stop_token_ids = {11};
  request.sampling.min_tokens = 3;
  const auto output = llm_->generate({request}).front();
  EXPECT_EQ(output.status.code(), Code::kInvalidArgument) << output.status.to_string();
  EXPECT_EQ(stats_at_rest(*llm_).corrupted, 0);
}

TEST_F(LlmTest, FrequencyPenaltyEndsRepetition) {
  auto request = greedy_request(random_prompt(20, 1), 12);
  request.sampling.logit_bias = {{77, 20.0f}};
  request.sampling.frequency_penalty = 2.0f;
  const auto ids = run(request).completions[0].token_ids;
  EXPECT_LT(std::count(ids.begin(), ids.end(), 77), 12);
  EXPECT_EQ(ids.front(), 77);
}

TEST_F(LlmTest, PromptLogprobsCoverThePrompt) {
  auto request = greedy_request(random_prompt(70, 9), 2);
  request.sampling.prompt_logprobs = 3;
  const auto output = run(request);
  ASSERT_EQ(output.prompt_logprobs.size(), 69u);
  for (size_t i = 0; i < output.prompt_logprobs.size(); ++i) {
    EXPECT_EQ(output.prompt_logprobs[i].chosen.token_id, output.prompt_token_ids[i + 1]);
    EXPECT_EQ(output.prompt_logprobs[i].top.size(), 3u);
    EXPECT_LE(output.prompt_logprobs[i].chosen.logprob, output.prompt_logprobs[i].top[0].logprob);
  }
}

TEST_F(LlmTest, RefusalsNameTheFieldAndTheLimit) {
  const auto refused = [&](auto change, const char* word) {
    auto request = greedy_request(random_prompt(5, 1), 4);
    change(request);
    const auto stream = llm_->submit(request);
    ASSERT_FALSE(stream.ok()) << word;
    EXPECT_NE(stream.status().message().find(word), std::string::npos) << stream.status().message();
  };
  refused([](Request& r) { r.sampling.temperature = -1; }, "temperature");
  refused([](Request& r) { r.sampling.temperature = std::numeric_limits<float>::quiet_NaN(); }, "temperature");
  refused([](Request& r) { r.sampling.top_p = -0.1f; }, "top_p");
  refused([](Request& r) { r.sampling.n = 0; }, "n is 0");
  refused([](Request& r) { r.sampling.stop_token_ids = {-1}; }, "stop_token_ids");
  refused([](Request& r) { r.sampling.repetition_penalty = 1e-45f; }, "repetition_penalty");
  const auto ask_for_all_logprobs = [](Request& r) {
    r.sampling.n = 128;
    r.sampling.max_tokens = 0;
    r.sampling.logprobs = 100;
  };
  refused(ask_for_all_logprobs, "n 128 with max_tokens 507");
  refused([](Request& r) { r.prompt_token_ids = {5000}; }, "5000");
  refused([](Request& r) { r.prompt = "both"; }, "exactly one");
  refused([](Request& r) { r.prompt_token_ids = random_prompt(600, 1); }, "--max-model-len");
}

TEST_F(LlmTest, AShareOfNothingLeavesTheMostLikelyToken) {
  const auto greedy = greedy_request(random_prompt(20, 1), 10);
  auto narrow = greedy;
  narrow.sampling.temperature = 2;
  narrow.sampling.top_p = 0;
  const auto outputs = llm_->generate({greedy, narrow});
  EXPECT_EQ(outputs[0].completions.at(0).token_ids, outputs[1].completions.at(0).token_ids);
}

TEST_F(LlmTest, AStreamTellsWhatItGoesOnWith) {
  const auto request = greedy_request(random_prompt(20, 1), 3);
  auto stream = llm_->submit(request);
  ASSERT_TRUE(stream.ok()) << stream.status().to_string();
  EXPECT_EQ((*stream)->prompt_token_ids(), request.prompt_token_ids);
  EXPECT_EQ((*stream)->wait().prompt_token_ids, request.prompt_token_ids);
}

TEST_F(LlmTest, LogprobsAreCountedInTheRoomThatTheContextLeaves) {
  auto request = greedy_request(random_prompt(505, 1), 1 << 30);
  request.sampling.n = 128;
  request.sampling.logprobs = 100;  // over the limit, were it not for the 7 tokens that fit
  const auto stream = llm_->submit(request);
  EXPECT_TRUE(stream.ok()) << stream.status().to_string();
}

TEST_F(LlmTest, ABadRequestLeavesItsNeighboursAlone) {
  auto good = greedy_request(random_prompt(20, 1), 10);
  auto bad = good;
  bad.sampling.top_p = 7;
  const auto outputs = llm_->generate({good, bad, good});
  EXPECT_TRUE(outputs[0].status.ok());
  EXPECT_EQ(outputs[1].status.code(), Code::kInvalidArgument);
  expect_same_bits(outputs[0], outputs[2]);
}

TEST(LlmLoadTest, ErrorsSayWhatIsMissing) {
  EngineOptions options;
  options.model = "/nonexistent/model";
  EXPECT_EQ(LLM::load(options).status().code(), Code::kNotFound);
  auto bad_dtype = tiny_options();
  bad_dtype.dtype = "int3";
  EXPECT_NE(LLM::load(bad_dtype).status().message().find("int3"), std::string::npos);
  auto too_long = tiny_options();
  too_long.max_model_len = 100000;
  EXPECT_NE(LLM::load(too_long).status().message().find("512"), std::string::npos);
}

TEST(LlmLoadTest, ShutDownEndsOpenRequests) {
  auto llm = load_or_die(tiny_options());
  auto stream = llm->submit(greedy_request(random_prompt(20, 2), 450));
  ASSERT_TRUE(stream.ok());
  llm.reset();
  const auto output = (*stream)->wait();
  EXPECT_TRUE(output.status.code() == Code::kUnavailable || output.completions[0].token_ids.size() == 450u);
}

TEST(LlmLoadTest, FullQueueIsRefusedAndOfflineBatchesWaitForIt) {
  auto options = tiny_options();
  options.max_waiting = 2;
  options.max_num_seqs = 1;
  auto llm = load_or_die(options);
  std::vector<Request> many(10, greedy_request(random_prompt(5, 1), 5));
  for (const auto& output : llm->generate(many)) EXPECT_TRUE(output.status.ok()) << output.status.to_string();
}

TEST(LlmLoadTest, AListMakesTheSameBatchesEveryTime) {
  auto options = tiny_options();
  options.enable_prefix_caching = false;
  options.max_num_seqs = 6;
  const auto llm = load_or_die(options);
  std::vector<Request> requests;
  for (int i = 0; i < 24; ++i) requests.push_back(greedy_request(random_prompt(5 + 3 * i, static_cast<uint32_t>(i)), 2 + i % 7));
  const auto steps_of_a_run = [&] {
    const int64_t before = stats_at_rest(*llm).steps;
    for (const auto& output : llm->generate(requests)) EXPECT_TRUE(output.status.ok()) << output.status.to_string();
    return stats_at_rest(*llm).steps - before;
  };
  const int64_t steps = steps_of_a_run();
  for (int run = 0; run < 5; ++run) EXPECT_EQ(steps_of_a_run(), steps);
}

}  // namespace
}  // namespace choral::engine
