// What comes to the host for a mixture of experts, whose rows should stay on the device.
#pragma once

#include <cstdint>
#include <thread>

#include "engine/tiny_model_test.h"

namespace choral::plugins {

inline constexpr int64_t kAnswerSteps = 4;

// Copies to the host in the steps of one prompt's answer, and back.
inline int64_t copies_of_an_answer(LLM& llm) {
  const auto answer = [&](int32_t first) {
    EXPECT_TRUE(llm.generate({engine::greedy_request({first, 6, 7}, static_cast<int>(kAnswerSteps))}).front().status.ok());
    while (llm.stats().running > 0) std::this_thread::yield();  // the last step's count comes after its token
    return llm.stats().host_copies;
  };
  const int64_t before = answer(1);  // and what holds the fused operators to their reference
  return answer(5) - before;
}

// Of a step the last row's logits come; of a layer with experts its router's, and where the weights go that are chosen by them.
inline int64_t least_copies(int64_t layers_with_experts) { return kAnswerSteps * (1 + 2 * layers_with_experts); }

}  // namespace choral::plugins
