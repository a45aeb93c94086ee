// The worker's side of the border by itself: steps written by hand, as a scheduler that speculates, cuts and forks would write
// them.
#include "engine/model_runner.h"

#include <gmock/gmock.h>

#include "engine/adapters/adapter_files_test.h"

namespace choral::engine {
namespace {

constexpr int32_t kBlock = static_cast<int32_t>(kernels::kKvBlockTokens);

class ModelRunnerTest : public ::testing::Test {
 protected:
  ModelRunnerTest() {
    EngineOptions options = tiny_options();
    worker_ = std::move(*Worker::make(options));
    const auto files = open_model_files(options);
    auto checkpoint = io::Checkpoint::open(files->location);
    CheckpointWeights weights(*checkpoint, {});
    CHORAL_CHECK(worker_->load(files->config, weights, options).ok(), "the tiny model loads");
    CHORAL_CHECK(worker_->initialize_cache(options).ok(), "the tiny model has a cache");
    runner_.emplace(worker_->context(), *worker_->loaded().model, worker_->lora_manager(), 512, 16, 0, std::vector<int32_t>{1});
  }

  // A request that computes its tokens from `first` on, in blocks from `first_block` on; the last `logits` rows give tokens.
  struct Part {
    uint64_t id;
    std::vector<int32_t> tokens;
    int32_t first = 0;
    int32_t logits = 1;
    int32_t first_block = 0;
    int32_t kept_tokens = 0;
    int32_t prompt_logprobs_begin = 0, prompt_logprobs_count = 0;
    int32_t row_logits = 0;
  };
  void add(const Part& part) {
    StepItem item;
    item.id = part.id;
    item.first_token = part.first;
    item.token_count = static_cast<int32_t>(part.tokens.size()) - part.first;
    item.first_row = input_.total_tokens;
    item.logits_count = part.logits;
    item.prompt_logprobs_begin = part.prompt_logprobs_begin;
    item.prompt_logprobs_count = part.prompt_logprobs_count;
    item.row_logits_count = part.row_logits;
    item.tokens = {part.kept_tokens, static_cast<int32_t>(input_.token_ids.size()),
                   static_cast<int32_t>(part.tokens.size()) - part.kept_tokens};
    input_.token_ids.insert(input_.token_ids.end(), part.tokens.begin() + part.kept_tokens, part.tokens.end());
    const auto blocks = (static_cast<int32_t>(part.tokens.size()) + kBlock - 1) / kBlock;
    input_.block_updates.push_back({0, static_cast<int32_t>(input_.block_ids.size()), blocks});
    for (int32_t b = 0; b < blocks; ++b) input_.block_ids.push_back(part.first_block + b);
    input_.items.push_back(item);
    input_.total_tokens += item.token_count;
  }
  void admit(uint64_t id, const std::vector<int32_t>& prompt) {
    NewRequest request{.id = id, .prompt = prompt, .max_length = 200, .rule = {}};
    request.rule.settings.temperature = 0;
    request.rule.logprobs = 3;
    request.rule.prompt_logprobs = 1;
    EXPECT_TRUE(runner_->add_request(request).ok());
  }
  Status run() {
    Status status = runner_->execute_model(input_, output_);
    input_ = {};
    return status;
  }
  struct Answer {
    int32_t token;
    std::vector<float> logprobs;
    bool operator==(const Answer&) const = default;
  };
  // Of the last step's token i.
  Answer answer(size_t i = 0) const {
    const auto& sampled = output_.tokens.at(i);
    EXPECT_TRUE(sampled.status.ok()) << sampled.status.to_string();
    Answer out{sampled.token, {sampled.logprob}};
    for (const auto& entry : output_.top_of(sampled)) out.logprobs.push_back(entry.logprob);
    EXPECT_EQ(out.logprobs.size(), 4U);
    return out;
  }
  // One token a step; `tokens` becomes prompt and outputs.
  std::vector<Answer> one_by_one(uint64_t id, std::vector<int32_t>& tokens, int count, int32_t first_block = 0) {
    admit(id, tokens);
    std::vector<Answer> answers;
    int32_t computed = 0, told = static_cast<int32_t>(tokens.size());
    for (int i = 0; i < count; ++i) {
      add({.id = id, .tokens = tokens, .first = computed, .first_block = first_block, .kept_tokens = told});
      EXPECT_TRUE(run().ok());
      computed = told = static_cast<int32_t>(tokens.size());
      answers.push_back(answer());
      tokens.push_back(answers.back().token);
    }
    return answers;
  }

  std::unique_ptr<Worker> worker_;
  std::optional<ModelRunner> runner_;
  StepInput input_;
  StepOutput output_;
};

TEST_F(ModelRunnerTest, RowsComputedAheadGiveTheTokensOfOneByOne) {
  const auto prompt = random_prompt(30, 1);
  auto tokens = prompt;
  const auto want = one_by_one(1, tokens, 6);

  // The first token, and then a draft of the next ones across a block's end: right twice, wrong from there on.
  auto draft = prompt;
  admit(2, draft);
  add({.id = 2, .tokens = draft, .first_block = 8, .kept_tokens = 30});
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(answer(), want[0]);
  draft.insert(draft.end(), {tokens[30], tokens[31], tokens[32], tokens[33] + 1, 5});
  add({.id = 2, .tokens = draft, .first = 30, .logits = 5, .first_block = 8, .kept_tokens = 30});
  ASSERT_TRUE(run().ok());
  ASSERT_EQ(output_.items[0].token_count, 5);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(answer(i), want[i + 1]) << i;

  // What was accepted stays, the rest is cut off and computed over.
  draft.resize(33);
  draft.push_back(answer(2).token);
  add({.id = 2, .tokens = draft, .first = 33, .first_block = 8, .kept_tokens = 33});
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(answer(), want[4]);
}

// The hidden state of a token knows nothing of later ones, so a mean's parts are the last states of the prompt's beginnings, and
// so are those of maxima.
TEST_F(ModelRunnerTest, WhatIsOfAllTokensIsOfEachTokensHiddenState) {
  const auto prompt = random_prompt(40, 8);
  uint64_t id = 1;
  const auto embed = [&](Pooling pooling, const std::vector<int32_t>& tokens, std::vector<int32_t> ends) {
    EXPECT_TRUE(runner_->add_request({.id = ++id, .prompt = tokens, .max_length = 200, .rule = {}, .pooling = pooling}).ok());
    for (int32_t begin = 0; const int32_t end : ends) {
      const std::vector<int32_t> known(tokens.begin(), tokens.begin() + end);
      add({.id = id, .tokens = known, .first = begin, .logits = 0, .kept_tokens = begin == 0 ? end : begin});
      input_.items.back().wants_embedding = end == std::ssize(tokens);
      EXPECT_TRUE(run().ok());
      EXPECT_EQ(output_.embeddings.size(), end == std::ssize(tokens) ? 64U : 0U);
      begin = end;
    }
    return output_.embeddings;
  };
  std::vector<double> sum(64);
  std::vector<float> first, most(64, -std::numeric_limits<float>::infinity());
  for (int32_t end = 1; end <= 40; ++end) {
    const auto last = embed(Pooling::kLast, {prompt.begin(), prompt.begin() + end}, {end});
    if (end == 1) first = last;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(last[i]), most[i] = std::max(most[i], last[i]);
  }
  std::vector<float> mean;
  for (const double part : sum) mean.push_back(static_cast<float>(part / 40));
  for (const auto& [pooling, want] : {std::pair(Pooling::kMean, mean), {Pooling::kFirst, first}, {Pooling::kMax, most}}) {
    EXPECT_EQ(embed(pooling, prompt, {40}), want) << pooling_name(pooling);
    EXPECT_EQ(embed(pooling, prompt, {7, 32, 33, 40}), want) << pooling_name(pooling) << " in chunks";
    EXPECT_EQ(embed(pooling, prompt, {20, 40}), want) << pooling_name(pooling);
  }
}

TEST_F(ModelRunnerTest, OtherBlocksHoldTheSame) {
  auto tokens = random_prompt(50, 2);
  const auto want = one_by_one(1, tokens, 3);
  tokens.pop_back();
  // As after a preemption: everything once more, elsewhere, beside another.
  auto other = random_prompt(20, 3);
  admit(2, other);
  add({.id = 2, .tokens = other, .first_block = 4, .kept_tokens = 20});
  add({.id = 1, .tokens = tokens, .first_block = 10, .kept_tokens = static_cast<int32_t>(tokens.size()) - 1});
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(answer(1), want[2]);
}

TEST_F(ModelRunnerTest, APreemptedOrForkedRequestSharesBlocks) {
  auto tokens = random_prompt(70, 4);
  const auto prompt = tokens;
  const auto want = one_by_one(1, tokens, 1);
  // A fork takes the two full blocks over and computes the six tokens after them in a block of its own.
  admit(2, prompt);
  StepItem item{.id = 2, .first_token = 64, .token_count = 6, .logits_count = 1, .tokens = {70, 0, 0}};
  input_.items = {item};
  input_.block_updates = {{0, 0, 3}};
  input_.block_ids = {0, 1, 9};
  input_.total_tokens = 6;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(answer(), want[0]);
}

TEST_F(ModelRunnerTest, PromptLogprobsAreOfTheRowsAsked) {
  const auto prompt = random_prompt(60, 5);
  admit(1, prompt);
  add({.id = 1, .tokens = prompt, .kept_tokens = 60, .prompt_logprobs_begin = 0, .prompt_logprobs_count = 59});
  ASSERT_TRUE(run().ok());
  const auto all = output_.prompt_logprobs;
  ASSERT_EQ(all.size(), 59U);
  admit(2, prompt);
  admit(3, prompt);
  add({.id = 2, .tokens = prompt, .first_block = 4, .kept_tokens = 60, .prompt_logprobs_begin = 10, .prompt_logprobs_count = 40});
  add({.id = 3, .tokens = prompt, .first_block = 8, .kept_tokens = 60});
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(output_.items[0].prompt_logprobs_count, 40);
  EXPECT_EQ(output_.items[1].prompt_logprobs_count, 0);
  ASSERT_EQ(output_.prompt_logprobs.size(), 40U);
  for (size_t i = 0; i < 40; ++i) {
    const auto &want = all[10 + i], &got = output_.prompt_logprobs[i];
    EXPECT_EQ(got.chosen.token_id, prompt[11 + i]);
    EXPECT_EQ(got.chosen.logprob, want.chosen.logprob);
    ASSERT_EQ(got.top.size(), 1U);
    EXPECT_EQ(got.top[0].logprob, want.top[0].logprob);
  }
}

// Of the step's item i; a row's end is the next one's begin.
std::vector<std::vector<float>> row_logits_of(const StepOutput& output, size_t item) {
  auto at = output.row_logits.begin();
  for (size_t i = 0; i < item; ++i) at += output.items[i].row_logits_count * output.items[i].row_logits_width;
  std::vector<std::vector<float>> rows;
  for (int32_t r = 0; r < output.items[item].row_logits_count; ++r, at += output.items[item].row_logits_width)
    rows.emplace_back(at, at + output.items[item].row_logits_width);
  return rows;
}

TEST_F(ModelRunnerTest, RowLogitsAreWhatTheLogprobsAreMadeOf) {
  const auto prompt = random_prompt(60, 5);
  admit(1, prompt);
  add({.id = 1, .tokens = prompt, .kept_tokens = 60, .prompt_logprobs_count = 59, .row_logits = 60});
  ASSERT_TRUE(run().ok());
  const auto all = row_logits_of(output_, 0);
  ASSERT_EQ(all.size(), 60U);
  for (size_t i = 0; i < 59; ++i) {
    ASSERT_EQ(all[i].size(), static_cast<size_t>(worker_->loaded().model->vocab_size()));
    const double sum = kernels::log_sum_exp(worker_->context().kernel.level, all[i]);
    EXPECT_EQ(static_cast<float>(static_cast<double>(all[i][prompt[i + 1]]) - sum), output_.prompt_logprobs[i].chosen.logprob);
  }
  // The sampled token is the last row's.
  EXPECT_EQ(std::max_element(all[59].begin(), all[59].end()) - all[59].begin(), answer().token);

  // In two chunks, beside others that want fewer and none.
  admit(2, prompt);
  admit(3, prompt);
  admit(4, prompt);
  const auto begin = std::vector(prompt.begin(), prompt.begin() + 25);
  add({.id = 3, .tokens = prompt, .first_block = 8, .kept_tokens = 60, .row_logits = 3});
  add({.id = 4, .tokens = prompt, .first_block = 12, .kept_tokens = 60});
  add({.id = 2, .tokens = begin, .logits = 0, .first_block = 4, .kept_tokens = 25, .row_logits = 25});
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(row_logits_of(output_, 0), std::vector(all.end() - 3, all.end()));
  EXPECT_TRUE(row_logits_of(output_, 1).empty());
  EXPECT_EQ(row_logits_of(output_, 2), std::vector(all.begin(), all.begin() + 25));
  add({.id = 2, .tokens = prompt, .first = 25, .first_block = 4, .kept_tokens = 25, .row_logits = 35});
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(row_logits_of(output_, 0), std::vector(all.begin() + 25, all.end()));
}

TEST_F(ModelRunnerTest, ForgetsWhatIsDropped) {
  auto tokens = random_prompt(10, 6);
  one_by_one(1, tokens, 2);
  EXPECT_EQ(runner_->known_requests(), 1U);
  input_.dropped = {1, 99};  // nobody ever heard of 99
  admit(3, random_prompt(5, 7));
  add({.id = 3, .tokens = random_prompt(5, 7), .kept_tokens = 5});
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(runner_->known_requests(), 1U);
  input_.dropped = {3};
  admit(2, random_prompt(5, 8));
  add({.id = 2, .tokens = random_prompt(5, 8), .logits = 0, .kept_tokens = 5});
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(runner_->known_requests(), 1U);
  EXPECT_TRUE(output_.tokens.empty());
}

using ModelRunnerDeathTest = ModelRunnerTest;

TEST_F(ModelRunnerDeathTest, RefusesStepsThatSpeakOfWhatItWasNotTold) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto prompt = random_prompt(10, 1);
  add({.id = 5, .tokens = prompt, .kept_tokens = 10});
  EXPECT_DEATH((void)run(), "never told of");
  input_ = {};
  admit(1, prompt);
  add({.id = 1, .tokens = prompt, .kept_tokens = 10});
  input_.items[0].tokens.kept = 11;
  EXPECT_DEATH((void)run(), "keeps more");
  input_.items[0].tokens.kept = 10;
  input_.block_updates[0].count = 0;
  EXPECT_DEATH((void)run(), "told of");
  input_.block_updates[0].count = 2;
  EXPECT_DEATH((void)run(), "does not bring");
  input_.block_updates[0].count = 1;
  input_.segments = {{0, 11, lora::AdapterKey{1}}};
  EXPECT_DEATH((void)run(), "a segment has rows");
  input_.segments.clear();
  input_.items[0].logits_count = 11;
  EXPECT_DEATH((void)run(), "told of");
}

}  // namespace
}  // namespace choral::engine
