#include "sched/step_plan.h"

#include <gmock/gmock.h>

#include "sched/simulated_engine_test.h"

namespace choral::sched {
namespace {

using lora::LoRASegment;
using ::testing::ElementsAre;

std::unique_ptr<Request> request_of(int32_t adapter_key, int32_t prompt, int32_t outputs, int32_t computed) {
  auto request = make_request(0, std::vector<int32_t>(prompt + outputs, 1), 1, adapter_key);
  request->prompt_count = prompt;
  request->computed_count = computed;
  return request;
}

TEST(StepPlan, GroupsByAdapterAndKeepsTheOrderInside) {
  const auto a = request_of(2, 4, 1, 4), b = request_of(0, 4, 1, 4), c = request_of(2, 4, 1, 4), d = request_of(0, 9, 0, 2),
             e = request_of(2, 5, 0, 0);
  StepPlan plan;
  plan.reserve(5);
  plan.add(*a, 1);
  plan.add(*b, 1);
  plan.add(*c, 1);
  plan.add(*d, 3);
  plan.add(*e, 5);
  plan.group();

  const Request* const order[] = {b.get(), d.get(), a.get(), c.get(), e.get()};
  const int32_t first_rows[] = {0, 1, 4, 5, 6};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(plan.items()[i].request, order[i]);
    EXPECT_EQ(plan.items()[i].first_row, first_rows[i]);
  }
  EXPECT_THAT(plan.segments(), ElementsAre(LoRASegment{4, 7, AdapterKey{2}}));
  EXPECT_EQ(plan.total_tokens(), 11);
  EXPECT_EQ(plan.decode_tokens(), 3);
  EXPECT_EQ(plan.prefill_tokens(), 8);
}

TEST(StepPlan, RowsBeforeTheActivationAreTheBases) {
  const auto activated = [](int32_t adapter_key, int32_t prompt, int32_t computed, int32_t activation) {
    auto request = request_of(adapter_key, prompt, 0, computed);
    request->activation_token = activation;
    return request;
  };
  const auto plain = request_of(2, 3, 0, 0), base = request_of(0, 2, 0, 0);
  const auto before = activated(2, 9, 1, 6), across = activated(2, 9, 4, 6), after = activated(2, 9, 6, 6),
             at_end = activated(3, 4, 0, 4), other = activated(1, 4, 0, 2);
  StepPlan plan;
  plan.reserve(7);
  plan.add(*plain, 3);
  plan.add(*across, 4);
  plan.add(*before, 5);  // ends right before the activation
  plan.add(*after, 2);
  plan.add(*base, 2);
  plan.add(*at_end, 4);  // only its outputs are the adapter's
  plan.add(*other, 3);
  plan.group();
  const Request* const order[] = {before.get(), base.get(), at_end.get(), other.get(), plain.get(), across.get(), after.get()};
  const int32_t base_tokens[] = {5, 2, 4, 2, 0, 2, 0};
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(plan.items()[i].request, order[i]) << i;
    EXPECT_EQ(plan.items()[i].base_tokens, base_tokens[i]) << i;
  }
  // `across` parts the rows of adapter 2; at_end's are not its adapter's yet.
  EXPECT_THAT(plan.segments(), ElementsAre(LoRASegment{13, 1, AdapterKey{1}}, LoRASegment{14, 3, AdapterKey{2}},
                                           LoRASegment{19, 4, AdapterKey{2}}));
}

TEST(StepPlan, OnlyTheChunkWithTheLastTokenNeedsLogits) {
  const auto request = request_of(0, 9, 0, 2);
  StepPlan plan;
  plan.add(*request, 6);
  EXPECT_FALSE(plan.items()[0].needs_logits);
  plan.clear();
  EXPECT_TRUE(plan.empty());
  EXPECT_EQ(plan.total_tokens(), 0);
  plan.add(*request, 7);
  EXPECT_TRUE(plan.items()[0].needs_logits);
  EXPECT_FALSE(plan.items()[0].is_decode);
}

TEST(StepPlan, PromptLogprobsOnlyWhileInThePrompt) {
  const auto prefill = request_of(0, 4, 0, 0), decode = request_of(0, 4, 1, 4);
  prefill->wants_prompt_logprobs = decode->wants_prompt_logprobs = true;
  StepPlan plan;
  plan.add(*prefill, 4);
  plan.add(*decode, 1);
  EXPECT_TRUE(plan.items()[0].needs_prompt_logprobs);
  EXPECT_FALSE(plan.items()[1].needs_prompt_logprobs);
  EXPECT_TRUE(plan.items()[1].is_decode);
}

TEST(StepPlan, PromptTokensAreNewOnce) {
  const auto again = request_of(0, 10, 2, 4);  // preempted after six of ten
  again->prompt_done_count = 6;
  again->wants_prompt_logprobs = true;
  StepPlan plan;
  plan.add(*again, 2);  // 4 and 5
  EXPECT_EQ(plan.items()[0].new_prompt_tokens, 0);
  EXPECT_FALSE(plan.items()[0].needs_prompt_logprobs);
  plan.add(*again, 3);  // 4 to 6
  EXPECT_EQ(plan.items()[1].new_prompt_tokens, 1);
  EXPECT_TRUE(plan.items()[1].needs_prompt_logprobs);
  plan.add(*again, 8);  // 4 to 11, of which two are outputs
  EXPECT_EQ(plan.items()[2].new_prompt_tokens, 4);
  EXPECT_EQ(plan.new_prompt_tokens(), 5);
  plan.clear();
  EXPECT_EQ(plan.new_prompt_tokens(), 0);
}

}  // namespace
}  // namespace choral::sched
