// A step says what the worker was not told yet, and no more.
#include "engine/step_input_writer.h"

#include <gmock/gmock.h>

#include "engine/tiny_model_test.h"
#include "sched/scheduler.h"

namespace choral::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StepInputWriterTest : public ::testing::Test {
 protected:
  static sched::SchedulerConfig config() {
    sched::SchedulerConfig config;
    config.max_num_seqs = 4;
    config.max_num_batched_tokens = 24;
    config.max_model_len = 200;
    config.enable_prefix_caching = false;
    return config;
  }
  EngineRequest& add(uint64_t id, int prompt, int32_t adapter = 0) {
    auto request = std::make_unique<EngineRequest>(SamplingParams{}, OutputText(nullptr, {}, 0));
    EngineRequest& added = *request;
    request->id = id;
    request->tokens = random_prompt(prompt, static_cast<uint32_t>(id));
    request->max_tokens = 100;
    request->adapter_key = lora::AdapterKey{adapter};
    if (adapter != 0) request->adapter_ids = {lora::AdapterId{adapter}};
    request->rule.seed = 1000 + id;
    EXPECT_TRUE(scheduler_.add(std::move(request)).ok());
    return added;
  }
  const StepInput& step() {
    scheduler_.schedule(plan_);
    introduced_.clear();
    for (const auto& item : plan_.items()) {
      auto& request = static_cast<EngineRequest&>(*item.request);
      if (request.introduced) continue;
      introduced_.push_back(StepInputWriter::introduction(request));
      StepInputWriter::introduced(request);
    }
    const StepInput& input = writer_.write(plan_);
    scheduler_.on_computed(plan_);
    const int32_t token = 7;
    for (const auto& item : plan_.items()) {
      if (item.needs_logits) scheduler_.commit(*item.request, {&token, 1});
    }
    return input;
  }

  sched::Scheduler scheduler_{config(), {6, 32}};
  sched::StepPlan plan_;
  StepInputWriter writer_{4, 24};
  std::vector<NewRequest> introduced_;  // for the last step
};

TEST_F(StepInputWriterTest, TellsARequestOnceAndThenWhatIsNew) {
  const auto& request = add(5, 40);
  const auto prompt = request.tokens;
  const StepInput& input = step();
  ASSERT_EQ(introduced_.size(), 1U);
  EXPECT_EQ(introduced_[0].id, 5U);
  EXPECT_EQ(introduced_[0].prompt, prompt);
  EXPECT_EQ(introduced_[0].max_length, 140);
  EXPECT_EQ(introduced_[0].rule.seed, 1005U);
  EXPECT_THAT(input.token_ids, IsEmpty());
  EXPECT_EQ(input.block_ids.size(), 2U);
  EXPECT_EQ(input.items[0].logits_count, 0);
  EXPECT_TRUE(input.has_prefill);
  EXPECT_EQ(input.total_tokens, 24);

  step();  // the other chunk
  EXPECT_THAT(introduced_, IsEmpty());
  EXPECT_THAT(input.token_ids, IsEmpty());
  EXPECT_THAT(input.block_ids, IsEmpty());
  EXPECT_EQ(input.items[0].first_token, 24);
  EXPECT_EQ(input.items[0].logits_count, 1);

  for (int32_t position = 40; position < 70; ++position) {
    step();
    const auto& item = input.items.at(0);
    EXPECT_EQ(item.first_token, position);
    EXPECT_EQ(item.tokens.kept, position);
    EXPECT_THAT(input.token_ids, ElementsAre(7));
    EXPECT_EQ(input.block_updates_of(0)[0].kept, position > 64 ? 3 : 2);
    EXPECT_EQ(input.block_ids.size(), position == 64 ? 1U : 0U);
    EXPECT_FALSE(input.has_prefill);
  }
}

TEST_F(StepInputWriterTest, TellsThePlaceAnewAfterAPreemption) {
  const auto& first = add(1, 20);
  const auto& second = add(2, 20);
  const StepInput& input = writer_.input();

  while (second.preemption_count == 0) step();
  ASSERT_EQ(first.preemption_count, 0);
  while (second.status != sched::RequestStatus::kRunning) {
    if (first.token_count() > 110) scheduler_.cancel(1);
    step();
  }
  const auto& item = input.items.back();
  ASSERT_EQ(item.id, 2U);
  EXPECT_EQ(item.first_token, 0);
  const auto& blocks = input.block_updates_of(input.items.size() - 1)[0];
  EXPECT_EQ(blocks.kept, 0);
  EXPECT_EQ(blocks.count, second.block_tables[0].size());
  EXPECT_THAT(introduced_, IsEmpty());
  EXPECT_LE(item.tokens.count, 1) << "its tokens are known";
}

TEST_F(StepInputWriterTest, DropsWhatItTold) {
  auto& told = add(1, 5);
  step();
  auto& untold = add(2, 5);
  writer_.forget(told);
  writer_.forget(untold);
  scheduler_.cancel(1);
  EXPECT_THAT(step().dropped, ElementsAre(1U));
  EXPECT_THAT(step().dropped, IsEmpty());
}

TEST_F(StepInputWriterTest, AsksForEachPromptRowOnce) {
  auto& request = add(1, 40);
  request.wants_prompt_logprobs = true;
  const StepInput& input = step();
  EXPECT_EQ(input.items[0].prompt_logprobs_begin, 0);
  EXPECT_EQ(input.items[0].prompt_logprobs_count, 24);
  step();
  EXPECT_EQ(input.items[0].prompt_logprobs_begin, 24);
  EXPECT_EQ(input.items[0].prompt_logprobs_count, 15) << "the last row speaks of an output";
  step();
  EXPECT_EQ(input.items[0].prompt_logprobs_count, 0);
}

TEST_F(StepInputWriterTest, SegmentsAreTheAdaptersRows) {
  add(1, 3, 9);
  add(2, 4);
  add(3, 2, 9);
  const StepInput& input = step();
  EXPECT_THAT(input.segments, ElementsAre(lora::LoRASegment{4, 5, lora::AdapterKey{9}}));
  EXPECT_EQ(input.items[0].id, 2U);
}

}  // namespace
}  // namespace choral::engine
