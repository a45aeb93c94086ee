#include "engine/stated_sampling.h"

#include <gmock/gmock.h>

namespace choral::engine {
namespace {

Result<StatedSampling> read(std::string_view json) {
  return StatedSampling::read(*io::ConfigMap::parse_json(json, "generation_config.json"));
}

TEST(StatedSampling, WhatIsNotStatedStays) {
  SamplingParams mine;
  mine.temperature = 0.8f;
  mine.top_k = 40;
  mine.max_tokens = 7;
  const SamplingParams some = (*read(R"({"top_p": 0.5, "temperature": 0.25, "eos_token_id": 3})")).over(mine);
  EXPECT_EQ(some.temperature, 0.25f);
  EXPECT_EQ(some.top_p, 0.5f);
  EXPECT_EQ(some.top_k, 40);
  EXPECT_EQ(some.max_tokens, 7);
  const SamplingParams all = (*read(R"({"top_k": 5, "min_p": 0.125, "repetition_penalty": 1.5, "do_sample": true})")).over(mine);
  EXPECT_EQ(all.top_k, 5);
  EXPECT_EQ(all.min_p, 0.125f);
  EXPECT_EQ(all.repetition_penalty, 1.5f);
  EXPECT_EQ(all.temperature, 0.8f);
  EXPECT_EQ((*read("{}")).over(mine).temperature, 0.8f);
}

TEST(StatedSampling, NoSamplingIsGreedy) {
  EXPECT_EQ((*read(R"({"do_sample": false, "temperature": 0.7})")).over({}).temperature, 0.0f);
}

TEST(StatedSampling, OutOfRangeIsTheFilesFault) {
  for (const char* json : {R"({"temperature": -1})", R"({"top_p": 1.5})", R"({"top_k": "5"})", R"({"repetition_penalty": 0})",
                           R"({"min_p": 2})", R"({"do_sample": 1})"}) {
    const auto refused = read(json);
    EXPECT_EQ(refused.status().code(), Code::kCorrupt) << json;
    EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("generation_config.json")) << json;
  }
}

}  // namespace
}  // namespace choral::engine
