// Invariant 8: a steady-state decode step, from scheduling to the text in the caller's response, allocates nothing.
#include <thread>

#include "engine/tiny_model_test.h"
#include "support/allocation_counter.h"

namespace choral::engine {
namespace {

TEST(SteadyState, DecodeStepsAllocateNothing) {
  const auto llm = load_or_die(tiny_options());
  std::vector<std::unique_ptr<ResponseStream>> streams;
  for (uint32_t i = 0; i < 8; ++i) {
    auto request = greedy_request(random_prompt(10 + static_cast<int>(i), i), 400);
    request.sampling.logprobs.reset();
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    request.sampling.top_p = 0.9f;
    auto stream = llm->submit(std::move(request));
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    streams.push_back(std::move(*stream));
  }
  const auto wait_for_steps = [&](int64_t steps) {
    while (llm->stats().steps < steps) std::this_thread::yield();
  };
  wait_for_steps(100);  // scratch has grown to what it needs
  ASSERT_EQ(llm->stats().running, 8);
  const int64_t begin = llm->stats().steps;
  choral::testing::start_counting_allocations();
  wait_for_steps(begin + 100);
  const auto counted = choral::testing::stop_counting_allocations();
  ASSERT_EQ(llm->stats().running, 8) << "the answers ended before the count did";
  EXPECT_EQ(counted.allocations, 0) << counted.bytes << " bytes, the largest " << counted.largest_bytes;
}

}  // namespace
}  // namespace choral::engine
