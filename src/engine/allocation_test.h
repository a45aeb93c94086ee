// Invariant 8 as a test sees it: an engine in the midst of decoding, and every operator new of the program.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "choral/llm.h"
#include "support/allocation_counter.h"

namespace choral::engine {

// `running` requests were submitted to the engine (an LLM, or one put together by hand) that decode for more than 200 steps:
// where guessed tokens make that fewer, without them.
template <class Engine>
void expect_no_allocations(Engine& llm, int running) {
  const auto wait_for_steps = [&](int64_t steps) {
    while (llm.stats().steps < steps) std::this_thread::yield();
  };
  // The first ones may be well on their way before the last is there: steps of tiny models are short.
  while (llm.stats().running < running && llm.stats().steps < 150) std::this_thread::yield();
  wait_for_steps(std::max<int64_t>(80, llm.stats().steps + 20));  // scratch has grown to what it needs
  ASSERT_EQ(llm.stats().running, running);
  const int64_t begin = llm.stats().steps;
  choral::testing::start_counting_allocations();
  wait_for_steps(begin + 60);  // nearly two KV blocks; models of 256 positions end at step 239
  const auto counted = choral::testing::stop_counting_allocations();
  ASSERT_EQ(llm.stats().running, running) << "the answers ended before the count did";
  EXPECT_EQ(counted.allocations, 0) << counted.bytes << " bytes, the largest " << counted.largest_bytes;
}

}  // namespace choral::engine
