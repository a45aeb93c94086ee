#include "tools/step_timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "support/temp_dir.h"

namespace choral::tools {
namespace {

using ::testing::HasSubstr;

StepTimerOptions tiny() {
  StepTimerOptions options;
  options.engine.model = CHORAL_TEST_DATA "/models/tiny-llama3";
  options.engine.threads = 2;
  options.engine.kv_cache_bytes = 4 << 20;
  return options;
}

std::unique_ptr<StepTimer> make_or_die(const StepTimerOptions& options) {
  auto timer = StepTimer::make(options);
  CHORAL_CHECK(timer.ok(), timer.status().message());
  return std::move(*timer);
}

// Prompts of many steps: those that came first must not be at their end when the last one is in.
TEST(StepTimer, LongContextsDecodeTogether) {
  auto options = tiny();
  options.engine.kv_cache_bytes = 64 << 20;
  const auto timer = make_or_die(options);
  const std::vector<StepTimer::Cast> casts{{0}};
  const auto decode = timer->decode(64, 440, 2, casts);
  ASSERT_TRUE(decode.ok()) << decode.status().message();
  EXPECT_EQ((*decode)[0].tokens, 64);
  EXPECT_EQ((*decode)[0].steps, 2);
}

TEST(StepTimer, EachCastIsTimedWithItsWholeBatch) {
  const auto timer = make_or_die(tiny());
  ASSERT_TRUE(timer->add_adapter(1, 4, 1).ok());
  ASSERT_TRUE(timer->add_adapter(2, 8, 2).ok());
  const std::vector<StepTimer::Cast> casts{{0}, {1}, {0, 1, 2}};
  const auto decode = timer->decode(3, 20, 5, casts);
  ASSERT_TRUE(decode.ok()) << decode.status().message();
  ASSERT_EQ(decode->size(), casts.size());
  for (const auto& timing : *decode) {
    EXPECT_EQ(timing.batch, 3);
    EXPECT_EQ(timing.tokens, 3);
    EXPECT_EQ(timing.steps, 5);
    EXPECT_GT(timing.attention_share, 0);
    EXPECT_GT(timing.product_s, 0);
    EXPECT_GT(timing.operators.size(), 5u);
    EXPECT_TRUE(std::is_sorted(timing.operators.begin(), timing.operators.end(),
                               [](const auto& a, const auto& b) { return a.seconds > b.seconds; }));
    EXPECT_FALSE(timing.host_s) << "the host is the device";
  }
  EXPECT_EQ((*decode)[0].shrink_share, 0) << "the base has no adapter to multiply";
  EXPECT_GT((*decode)[1].shrink_share, 0);
  EXPECT_GT((*decode)[2].shrink_share, 0);

  const auto prefill = timer->prefill(40, 2, casts);
  ASSERT_TRUE(prefill.ok()) << prefill.status().message();
  ASSERT_EQ(prefill->size(), casts.size());
  EXPECT_EQ((*prefill)[0].batch, 1);
  EXPECT_EQ((*prefill)[0].tokens, 40);
  EXPECT_EQ((*prefill)[0].steps, 2);
  EXPECT_GT((*prefill)[1].shrink_share, 0);
  // Layers multiply every row, the head only those that give a token; of the embedding rows are read.
  constexpr double kHead = 4096 * 64;
  const double layers = (*decode)[0].flops / (2 * 3) - kHead;
  EXPECT_NEAR(layers, static_cast<double>(timer->model().parameters) - 2 * kHead, 1000) << "but for norms and biases";
  EXPECT_EQ((*prefill)[0].flops, 2 * (40 * layers + kHead));
  EXPECT_EQ((*prefill)[0].weight_bytes, (*decode)[0].weight_bytes);
}

// Threads meet for the four products of a layer and its attention; with several rows for its two norms and its activation too. A
// layer that makes them meet more often is slower on many threads, whatever it gains on two.
TEST(StepTimer, ThreadsMeetAsOftenAsALayerHasOperations) {
  StepTimerOptions options;
  options.synthetic = "135m";
  options.engine.threads = 2;
  options.engine.kv_cache_bytes = 128 << 20;
  const auto timer = make_or_die(options);
  ASSERT_TRUE(timer->add_adapter(1, 16, 1).ok());
  constexpr double kLayers = 30, kHead = 1;
  const auto shared = [&](int batch, const StepTimer::Cast& cast) {
    const auto decode = timer->decode(batch, 32, 3, std::span(&cast, 1));
    CHORAL_CHECK(decode.ok(), decode.status().message());
    return (*decode)[0].shared_tasks;
  };
  EXPECT_EQ(shared(1, {0}), kLayers * 5 + kHead);
  EXPECT_LE(shared(1, {1}), kLayers * 10 + kHead) << "an adapter's shrinks and expands, where they are worth it";
  EXPECT_LE(shared(8, {0}), kLayers * 8 + kHead + 2);
}

TEST(StepTimer, ExpertsThatNoRowComesToAreNotRead) {
  auto options = tiny();
  options.engine.model = CHORAL_TEST_DATA "/models/tiny-qwen3moe";
  const auto timer = make_or_die(options);
  const std::vector<StepTimer::Cast> casts{{0}};
  const auto one = timer->decode(1, 20, 2, casts), many = timer->decode(8, 20, 2, casts);
  ASSERT_TRUE(one.ok() && many.ok()) << one.status().message() << many.status().message();
  EXPECT_EQ((*many)[0].flops, 8 * (*one)[0].flops) << "each row meets as many experts";
  EXPECT_LT((*one)[0].weight_bytes, (*many)[0].weight_bytes) << "rows meet other experts";
  EXPECT_LT((*many)[0].weight_bytes, static_cast<double>(timer->model().weight_bytes));
  constexpr double kExpert = 3 * 64 * 32, kAttention = 64 * (64 + 2 * 32) + 64 * 64, kHead = 4096 * 64;
  constexpr double kMixtures = 3 * (kAttention + 8 * 64 + 2 * kExpert), kDense = kAttention + 3 * 64 * 128;
  EXPECT_EQ((*one)[0].flops, 2 * (kMixtures + kDense + kHead));
}

TEST(StepTimer, ModelIsLoadedAsTheEngineLoadsIt) {
  const auto timer = make_or_die(tiny());
  const auto llm = LLM::load(tiny().engine);
  ASSERT_TRUE(llm.ok()) << llm.status().message();
  const auto& info = (*llm)->info();
  EXPECT_EQ(timer->model().name, info.name);
  EXPECT_EQ(timer->model().parameters, info.parameters);
  EXPECT_EQ(timer->model().weight_bytes, info.weight_bytes);
  EXPECT_EQ(timer->model().threads, 2);
  EXPECT_EQ(timer->model().cpu_level, info.cpu_level);
}

TEST(StepTimer, WhatDoesNotFitIsRefused) {
  const auto timer = make_or_die(tiny());
  const std::vector<int> batch{1}, all{StepTimer::kMaxBatch}, prefill{16};
  EXPECT_TRUE(timer->check_room(batch, prefill, 16, 4).ok());
  EXPECT_THAT(timer->check_room(batch, prefill, 1 << 20, 4).message(), HasSubstr("lower --context"));
  EXPECT_THAT(timer->check_room(all, prefill, 200, 4).message(), HasSubstr("raise --kv-cache-memory"));
  EXPECT_FALSE(timer->add_adapter(1, StepTimer::kMaxAdapterRank + 1, 1).ok());
}

TEST(StepTimer, BadModelsAreRefused) {
  StepTimerOptions options = tiny();
  options.engine.model = "/no/such/model";
  EXPECT_EQ(StepTimer::make(options).status().code(), Code::kNotFound);
  options.synthetic = "9000b";
  EXPECT_THAT(StepTimer::make(options).status().message(), HasSubstr("135m"));
  options.synthetic_format = "q9";
  EXPECT_THAT(StepTimer::make(options).status().message(), HasSubstr("--format"));
}

TEST(StepTimer, ZipfCastNamesOnlyItsAdapters) {
  const auto cast = StepTimer::zipf_cast(10, 1000);
  ASSERT_EQ(cast.size(), 1000u);
  EXPECT_EQ(*std::min_element(cast.begin(), cast.end()), 1);
  EXPECT_LE(*std::max_element(cast.begin(), cast.end()), 10);
  EXPECT_GT(std::count(cast.begin(), cast.end(), 1), 2 * std::count(cast.begin(), cast.end(), 5));
  EXPECT_EQ(cast, StepTimer::zipf_cast(10, 1000));
}

TEST(StepTimer, WrittenAdapterIsServed) {
  const testing::TempDir folder;
  const auto timer = make_or_die(tiny());
  ASSERT_TRUE(timer->write_adapter(folder / "made", 4, 1).ok());
  EngineOptions options = tiny().engine;
  options.adapters = {{.name = "made", .path = folder / "made"}};
  const auto llm = LLM::load(options);
  ASSERT_TRUE(llm.ok()) << llm.status().message();
  Request request;
  request.prompt_token_ids = {1, 2, 3};
  request.sampling.max_tokens = 2;
  request.adapters = {{.name = "made", .scale = 1.0F}};
  const auto outputs = (*llm)->generate({request});
  EXPECT_TRUE(outputs.at(0).status.ok()) << outputs.at(0).status.message();
  EXPECT_EQ((*llm)->adapters().at(0).state, AdapterState::kResident);
}

}  // namespace
}  // namespace choral::tools
