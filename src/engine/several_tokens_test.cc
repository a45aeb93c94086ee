// An item may give several tokens at once. Over an executor without a model, whose text is known: the answer is the same however
// many come at a time, ends where it must in the middle of them, and what was accepted is computed like any other token.
#include <gmock/gmock.h>

#include <map>

#include "engine/assembled_engine_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kPrompt = 40;

// What stands at a position of any answer.
int32_t scripted_token(int32_t position) { return 100 + position - kPrompt; }

class ScriptedExecutor : public Executor {
 public:
  // `burst` tokens at a time; `fails_at`: the output that can't be had.
  ScriptedExecutor(int burst, int32_t kv_blocks, int32_t fails_at = -1) : burst_(burst), fails_at_(fails_at) {
    facts_.vocab_size = 4000;
    facts_.max_model_len = 256;
    facts_.kv_pool = {.blocks = kv_blocks, .block_tokens = 32};
  }
  const ExecutorFacts& facts() const override { return facts_; }
  Result<lora::Readiness> add_adapter(lora::AdapterKey, lora::PackedVoice) override { return lora::Readiness::kReady; }
  void remove_adapter(lora::AdapterKey) override {}
  std::vector<std::string> take_device_notes() override { return {}; }

  Status add_request(const NewRequest& request) override {
    known_[request.id].tokens = request.prompt;
    return {};
  }
  Status execute_model(const StepInput& input, StepOutput& out) override {
    out.clear();
    for (const auto id : input.dropped) known_.erase(id);
    for (size_t i = 0; i < input.items.size(); ++i) {
      const auto& item = input.items[i];
      Known& known = known_.at(item.id);
      update(item.tokens, input.token_ids_of(item.tokens), known.tokens);
      const auto& blocks = input.block_updates_of(i)[0];
      update(blocks, input.block_ids_of(blocks), known.blocks);
      const int32_t end = item.first_token + item.token_count;
      const auto count = static_cast<int32_t>(known.tokens.size());
      EXPECT_LE(end, count);
      EXPECT_LE(end, static_cast<int32_t>(known.blocks.size()) * 32) << "each token has its place";
      EXPECT_TRUE(item.first_token == known.computed || item.first_token % 32 == 0) << "begins where it ended, or anew";
      known.computed = end;
      for (int32_t p = kPrompt; p < count; ++p) EXPECT_EQ(known.tokens[p], scripted_token(p));
      EXPECT_EQ(item.logits_count, end == count ? 1 : 0);
      const int tokens = item.logits_count * burst_;
      for (int32_t next = 0; next < tokens; ++next) {
        auto& token = out.tokens.emplace_back();
        token.token = scripted_token(end + next);
        token.logprob = -1;
        if (end + next - kPrompt == fails_at_) token.status = internal_error("nobody knows output {}", fails_at_);
      }
      out.items.push_back({.token_count = tokens});
    }
    return {};
  }

 private:
  struct Known {
    std::vector<int32_t> tokens, blocks;
    int32_t computed = 0;
  };
  static void update(const ListUpdate& update, std::span<const int32_t> values, std::vector<int32_t>& list) {
    ASSERT_LE(update.kept, list.size());
    list.resize(update.kept);
    list.insert(list.end(), values.begin(), values.end());
  }

  int burst_;
  int32_t fails_at_;
  ExecutorFacts facts_;
  std::map<uint64_t, Known> known_;
};

AssembledEngine engine_of(int burst, int32_t kv_blocks = 64, int32_t fails_at = -1, EngineOptions options = tiny_options()) {
  return {std::move(options),
          [&](EngineOptions&, const ModelFiles&) { return std::make_unique<ScriptedExecutor>(burst, kv_blocks, fails_at); }};
}

Request request_for(int max_tokens, uint32_t seed = 1) {
  auto request = greedy_request(random_prompt(kPrompt, seed), max_tokens);
  request.sampling.logprobs = 0;
  return request;
}

Completion only(AssembledEngine engine, Request request) {
  auto outputs = engine.generate({std::move(request)});
  EXPECT_TRUE(outputs.at(0).status.ok()) << outputs.at(0).status.to_string();
  return outputs.at(0).completions.at(0);
}

std::vector<int32_t> script(int count) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(scripted_token(kPrompt + i));
  return ids;
}

class SeveralTokens : public ::testing::TestWithParam<int> {};

TEST_P(SeveralTokens, EndAtTheLengthInTheMiddle) {
  const auto answer = only(engine_of(GetParam()), request_for(100));
  EXPECT_EQ(answer.token_ids, script(100));
  EXPECT_EQ(answer.logprobs.size(), 100U);
  EXPECT_EQ(answer.cumulative_logprob, -100);
  EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
}

TEST_P(SeveralTokens, EndAtAStopTokenInTheMiddle) {
  auto request = request_for(100);
  request.sampling.stop_token_ids = {104, 110};
  request.sampling.min_tokens = 6;  // so the first of them, the fifth output, is none
  const auto answer = only(engine_of(GetParam()), request);
  EXPECT_EQ(answer.token_ids, script(11));
  EXPECT_EQ(answer.logprobs.size(), 11U);
  EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
  EXPECT_EQ(answer.stop_reason, "110");
}

TEST_P(SeveralTokens, EndAtAStopStringInTheMiddle) {
  const auto plain = only(engine_of(GetParam()), request_for(12));
  auto request = request_for(100);
  request.sampling.stop = {plain.text.substr(plain.text.size() - 2)};
  const auto stopped = only(engine_of(GetParam()), request);
  const auto one_by_one = only(engine_of(1), request);
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.stop_reason, request.sampling.stop[0]);
  EXPECT_EQ(stopped.text, one_by_one.text);
  EXPECT_EQ(stopped.token_ids, one_by_one.token_ids);
  EXPECT_LE(stopped.token_ids.size(), 12U);
}

TEST_P(SeveralTokens, EndAtAnErrorInTheMiddle) {
  auto engine = engine_of(GetParam(), 64, /*fails_at=*/8);
  const auto outputs = engine.generate({request_for(100), request_for(5)});
  EXPECT_EQ(outputs[0].status.code(), Code::kInternal);
  EXPECT_THAT(outputs[0].status.message(), HasSubstr("output 8"));
  EXPECT_EQ(outputs[0].completions[0].token_ids, script(8));
  EXPECT_TRUE(outputs[1].status.ok()) << outputs[1].status.to_string();
  EXPECT_EQ(outputs[1].completions[0].token_ids, script(5));
  ASSERT_TRUE(engine.core().check_health(std::chrono::minutes(1)).ok());
  EXPECT_EQ(engine.stats().corrupted, 1);
}

TEST_P(SeveralTokens, FindRoomByPreemption) {
  auto options = tiny_options();
  options.max_num_batched_tokens = 24;  // prompts and what was accepted come in chunks
  options.max_num_seqs = 8;
  for (const bool prefix_caching : {false, true}) {
    options.enable_prefix_caching = prefix_caching;
    auto engine = engine_of(GetParam(), /*kv_blocks=*/9, -1, options);
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 6; ++i) requests.push_back(request_for(160, i));
    for (const auto& output : engine.generate(requests)) {
      ASSERT_TRUE(output.status.ok()) << output.status.to_string();
      EXPECT_EQ(output.completions[0].token_ids, script(160));
    }
    const auto stats = engine.stats();
    EXPECT_GT(stats.preemptions, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(AtATime, SeveralTokens, ::testing::Values(1, 2, 3, 7, 33));

}  // namespace
}  // namespace choral::engine
