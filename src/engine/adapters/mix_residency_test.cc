// Adapters that come and go in an engine: mixes under small budgets, and contents that are nobody's any more.
#include <gmock/gmock.h>

#include <optional>
#include <random>

#include "engine/adapters/adapter_files_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kAdapters = 5;

class MixResidencyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < kAdapters; ++i) files_.write(name(i), 4, 10 + static_cast<uint64_t>(i));
    options_.adapter_root = files_.root().string();
    roomy_ = load_or_die(options_);
    for (int i = 0; i < kAdapters; ++i) roomy_->generate({ask({{name(i)}})});
    size_bytes_ = roomy_->stats().adapter_bytes / kAdapters;
  }
  static std::string name(int i) { return std::string(1, static_cast<char>('a' + i)); }
  static Request ask(std::vector<AdapterUse> uses, int tokens = 6) {
    return with_adapters(greedy_request(random_prompt(20, 3), tokens), std::move(uses));
  }
  // Room for so many halves of an adapter.
  std::unique_ptr<LLM> with_room(int halves) {
    options_.adapter_memory_bytes = size_bytes_ * halves / 2;
    return load_or_die(options_);
  }
  // Every load that was asked for is done and taken in.
  void settle(LLM& llm) {
    ASSERT_TRUE(llm.load_adapter({"last", (files_.root() / "a").string()}).ok());
    ASSERT_TRUE(llm.unload_adapter("last").ok());
    llm.generate({ask({}, 8)});
  }

  AdapterFiles files_;
  EngineOptions options_ = tiny_options();
  std::unique_ptr<LLM> roomy_;
  int64_t size_bytes_ = 0;
};

// Each of the two mixes finds one of its adapters in memory, and there is room for one mix.
TEST_F(MixResidencyTest, TwoMixesDoNotWaitForEachOther) {
  const auto llm = with_room(5);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(llm->generate({ask({{name(i)}})}).front().status.ok());
    const std::vector<Request> mixes{ask({{"a"}, {"c"}}), ask({{"b"}, {"d"}})};
    const auto together = llm->generate(mixes);
    for (size_t i = 0; i < mixes.size(); ++i) expect_same_bits(roomy_->generate({mixes[i]}).front(), together[i]);
  }
  EXPECT_LE(llm->stats().adapter_bytes, options_.adapter_memory_bytes);
}

TEST_F(MixResidencyTest, AnAdapterNamedTwiceIsInMemoryOnceAndActsTwice) {
  const auto llm = with_room(3);
  for (const char* name : {"a", "b"}) ASSERT_TRUE(llm->generate({ask({{name}})}).front().status.ok());  // "a" was dropped for "b"
  const auto twice = ask({{"a", 0.75F}, {"a", 0.25F}});
  const auto output = llm->generate({twice}).front();
  expect_same_bits(roomy_->generate({twice}).front(), output);
  EXPECT_EQ(llm->stats().adapter_bytes, size_bytes_);
  const auto once = llm->generate({ask({{"a"}})}).front();
  EXPECT_NEAR(output.completions[0].logprobs[0].chosen.logprob, once.completions[0].logprobs[0].chosen.logprob, 1e-4)
      << "factors add up";
}

TEST_F(MixResidencyTest, MaxLorasCountsAdaptersNotFactors) {
  options_.max_loras = 1;
  options_.max_num_seqs = 8;
  const auto llm = with_room(5);
  std::vector<Request> factors;
  for (int i = 0; i < 6; ++i) factors.push_back(ask({{"a", 1.0F + 0.1F * static_cast<float>(i)}}));
  const auto together = llm->generate(factors);
  for (size_t i = 0; i < factors.size(); ++i) expect_same_bits(roomy_->generate({factors[i]}).front(), together[i]);
  EXPECT_TRUE(llm->generate({ask({{"a"}, {"a", 0.5F}})}).front().status.ok());
  const auto refused = llm->generate({ask({{"a"}, {"b"}})}).front();
  EXPECT_EQ(refused.status.code(), Code::kInvalidArgument) << refused.status.to_string();
  EXPECT_THAT(refused.status.message(), HasSubstr("max_loras"));
}

// Any mixes, budgets, limits, cancellations and pins: everything ends, and what nobody names any more is out of memory.
TEST_F(MixResidencyTest, WhateverIsAskedForEnds) {
  std::mt19937 random(7);
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  for (int round = 0; round < 8; ++round) {
    options_.max_loras = round % 3 == 0 ? 2 : 0;
    options_.max_num_seqs = 2 + below(6);
    const auto llm = with_room(3 + below(5));
    std::vector<std::unique_ptr<ResponseStream>> streams;
    for (int i = 0; i < 40; ++i) {
      std::vector<AdapterUse> uses;
      for (int terms = below(4); terms > 0; --terms)
        uses.push_back({name(below(kAdapters)), 0.5F * static_cast<float>(below(3))});
      auto stream = llm->submit(ask(std::move(uses), 1 + below(12)));
      ASSERT_TRUE(stream.ok()) << stream.status().to_string();
      streams.push_back(std::move(*stream));
      if (below(5) == 0) streams[below(static_cast<int>(streams.size()))]->cancel();
      if (below(8) == 0) (void)llm->pin_adapter(name(below(kAdapters)), below(2) == 0).ok();
    }
    int answered = 0;
    for (auto& stream : streams) {
      const auto output = stream->wait();
      if (output.status.ok()) ++answered;
      // A mix may be larger than the budget beside the pins, or than max_loras.
      if (!output.status.ok() && output.status.code() != Code::kTooLarge) {
        EXPECT_EQ(output.status.code(), Code::kInvalidArgument) << output.status.to_string();
      }
    }
    EXPECT_GT(answered, 10);
    EXPECT_LE(llm->stats().adapter_bytes, options_.adapter_memory_bytes);
    for (const auto& info : llm->adapters()) EXPECT_TRUE(llm->unload_adapter(info.name).ok()) << info.name;
    settle(*llm);
    EXPECT_EQ(llm->stats().adapter_bytes, 0) << "round " << round;
  }
}

}  // namespace
}  // namespace choral::engine
