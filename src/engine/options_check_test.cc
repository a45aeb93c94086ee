// Every numeric option out of range is refused by its name, before a model is opened.
#include "engine/options_check.h"

#include <gmock/gmock.h>

#include <limits>

#include "engine/speculation/speculation_choice.h"
#include "engine/tiny_model_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

TEST(OptionsCheck, DefaultsPass) { EXPECT_TRUE(check_options({}).ok()); }

template <class T>
void expect_refused(T EngineOptions::*option, std::initializer_list<T> values, const char* flag) {
  for (const T value : values) {
    EngineOptions options = tiny_options();
    options.*option = value;
    for (const Status& status : {check_options(options), LLM::load(options).status()}) {
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << flag << " " << value;
      EXPECT_THAT(status.message(), HasSubstr(fmt::format("{} {}: give 1 to ", flag, value)));
    }
  }
}

TEST(OptionsCheck, RefusesEveryNumberOutOfRangeByItsFlag) {
  constexpr int kLow = std::numeric_limits<int>::min(), kHigh = std::numeric_limits<int>::max();
  constexpr auto kLowBytes = std::numeric_limits<int64_t>::min(), kHighBytes = std::numeric_limits<int64_t>::max();
  expect_refused(&EngineOptions::threads, {-1, kLow, kHigh}, "--threads");
  expect_refused(&EngineOptions::max_model_len, {-1, kLow, kHigh}, "--max-model-len");
  expect_refused(&EngineOptions::max_num_seqs, {0, -1, kLow, kHigh}, "--max-num-seqs");
  expect_refused(&EngineOptions::max_num_batched_tokens, {0, -1, kLow, kHigh}, "--max-num-batched-tokens");
  expect_refused(&EngineOptions::most_guessed, {0, -1, 13, kLow, kHigh}, "--num-speculative-tokens");
  expect_refused(&EngineOptions::max_waiting, {0, -1, kLow, kHigh}, "max_waiting");
  expect_refused(&EngineOptions::max_loras, {-1, kLow, kHigh}, "--max-loras");
  expect_refused(&EngineOptions::lora_extra_vocab_size, {-1, 65537, kLow, kHigh}, "--lora-extra-vocab-size");
  expect_refused(&EngineOptions::max_cpu_loras, {-1, kLow, kHigh}, "--max-cpu-loras");
  expect_refused(&EngineOptions::kv_cache_bytes, {int64_t{-1}, kLowBytes, kHighBytes}, "--kv-cache-memory");
  expect_refused(&EngineOptions::adapter_memory_bytes, {int64_t{-1}, kLowBytes, kHighBytes}, "--adapter-memory");
}

TEST(OptionsCheck, ADraftModelIsNamedOnce) {
  const auto model_of = [](const std::string& speculative, const std::string& draft_model) {
    EngineOptions options;
    options.speculative = speculative;
    options.draft_model = draft_model;
    const auto choice = speculation_choice(options);
    EXPECT_EQ(choice.ok(), check_options(options).ok());
    return choice.ok() ? choice->draft_model : std::string(choice.status().message());
  };
  EXPECT_EQ(model_of("ngram", ""), "");
  EXPECT_EQ(model_of("off", ""), "");
  EXPECT_EQ(model_of("ngram", "a/b"), "a/b");
  EXPECT_EQ(model_of("draft=a/b,c", ""), "a/b,c");
  EXPECT_EQ(model_of("ngram,draft=a/b", "a/b"), "a/b");
  EXPECT_EQ(model_of("ngram,traffic,draft=a/b,c", ""), "a/b,c");
  EXPECT_EQ(model_of("traffic", "a"), "a");
  EXPECT_THAT(model_of("draft=", ""), HasSubstr("name a model behind draft="));
  EXPECT_THAT(model_of("draft=a", "b"), HasSubstr("--speculative draft=a and --draft-model b: give one of them"));
  EXPECT_THAT(model_of("off", "b"), HasSubstr("--draft-model b would guess nothing"));
  EXPECT_THAT(model_of("eagle", ""), HasSubstr("choose off, or some of ngram, traffic and draft=MODEL"));
}

TEST(OptionsCheck, WhatIsSaidOfADraftModelNeedsOne) {
  EngineOptions options;
  options.draft_quantization = "w4a16";
  EXPECT_THAT(std::string(check_options(options).message()), HasSubstr("--draft-quantization w4a16: there is no draft model"));
  options.draft_model = "a";
  EXPECT_TRUE(check_options(options).ok());
  options = {};
  options.draft_adapters = {{"x", "y"}};
  EXPECT_THAT(std::string(check_options(options).message()), HasSubstr("--draft-lora x: there is no draft model"));
}

TEST(OptionsCheck, AdaptersOfAStepFitInMemoryTogether) {
  EngineOptions options = tiny_options();
  options.max_loras = 4;
  options.max_cpu_loras = 3;
  const Status few = LLM::load(options).status();
  EXPECT_EQ(few.code(), Code::kInvalidArgument);
  EXPECT_THAT(few.message(), HasSubstr("max_cpu_loras is 3; it must be at least max_loras (4)"));
  for (const int most : {0, 3}) {
    options.max_loras = most;
    EXPECT_TRUE(LLM::load(options).ok()) << most;
  }
}

TEST(OptionsCheck, AKvCacheTooSmallForOneTokenSaysSoInUnitsThatShowIt) {
  EngineOptions options = tiny_options();
  options.kv_cache_bytes = 1024;
  const Status status = LLM::load(options).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("1.0 KiB holds 0 tokens"));
  EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("0 MiB,")));
}

}  // namespace
}  // namespace choral::engine
