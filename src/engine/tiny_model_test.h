// Helpers of the engine's tests: the tiny models of tests/data, requests over random token ids, bit-for-bit comparison.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "choral/llm.h"
#include "support/test_paths.h"

namespace choral::engine {

// Without guessed tokens, which come by the time that steps take: what a test counts would not be the same each time.
inline EngineOptions tiny_options(const std::string& model = "tiny-llama3") {
  EngineOptions options;
  options.speculative = "off";
  options.model = testing::test_data("/models/" + model);
  options.threads = 2;
  return options;
}

inline std::unique_ptr<LLM> load_or_die(const EngineOptions& options) {
  auto llm = LLM::load(options);
  EXPECT_TRUE(llm.ok()) << llm.status().to_string();
  return llm.ok() ? std::move(*llm) : nullptr;
}

// `length` ids below 4000 that depend on `seed` only.
inline std::vector<int32_t> random_prompt(int length, uint32_t seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i < length; ++i) {
    seed = seed * 1664525u + 1013904223u;
    ids.push_back(static_cast<int32_t>((seed >> 8) % 4000u));
  }
  return ids;
}

inline Request greedy_request(std::vector<int32_t> prompt, int max_tokens) {
  Request request;
  request.prompt_token_ids = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 5;
  return request;
}

// Once every request has ended: an answer may be there a moment before the step that gave it is counted.
template <class Engine>
EngineStats stats_at_rest(const Engine& llm) {
  for (int i = 0; i < 10000 && llm.stats().running > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(llm.stats().running, 0);
  return llm.stats();
}

// Tokens and log-probabilities equal to the last bit.
inline void expect_same_bits(const RequestOutput& a, const RequestOutput& b) {
  ASSERT_TRUE(a.status.ok()) << a.status.to_string();
  ASSERT_TRUE(b.status.ok()) << b.status.to_string();
  const auto &x = a.completions.at(0), &y = b.completions.at(0);
  ASSERT_EQ(x.token_ids, y.token_ids);
  ASSERT_EQ(x.logprobs.size(), y.logprobs.size());
  for (size_t i = 0; i < x.logprobs.size(); ++i) {
    const auto &p = x.logprobs[i], &q = y.logprobs[i];
    ASSERT_EQ(std::memcmp(&p.chosen, &q.chosen, sizeof p.chosen), 0) << "token " << i;
    ASSERT_EQ(p.top.size(), q.top.size());
    for (size_t t = 0; t < p.top.size(); ++t) ASSERT_EQ(std::memcmp(&p.top[t], &q.top[t], sizeof p.top[t]), 0) << "token " << i;
  }
}

}  // namespace choral::engine
