// Adapters that come and go: mixes under small budgets, and contents that are nobody's any more, whatever happened on their way.
#include "engine/adapter_residency.h"

#include <gmock/gmock.h>

#include <atomic>
#include <optional>
#include <random>
#include <thread>

#include "engine/adapter_executor_test.h"
#include "engine/adapter_files_test.h"
#include "engine/registry_test.h"

namespace choral::engine {
namespace {

using sched::Residency;
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
      if (below(5) == 0) streams[static_cast<size_t>(below(static_cast<int>(streams.size())))]->cancel();
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

// The residency alone, step by step; the budget holds one adapter and a half.
class ResidencyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"0", "1", "2"}) files_.write(name, 4, static_cast<uint64_t>(name[0]));
    ASSERT_TRUE(registry_.load({"probe", (files_.root() / "0").string()}, false).ok());
    const int64_t size_bytes = registry_.list().front().size_bytes;
    ASSERT_TRUE(registry_.unload("probe").ok());
    residency_.emplace(registry_, executor_, size_bytes * 3 / 2);
    registry_.set_wake([] {});
    wait_for_loads(1);
    ASSERT_EQ(residency_->content_count(), 0U) << "its name had gone before it came";
  }
  std::unique_ptr<EngineRequest> request(const std::vector<std::string>& names) {
    auto made = std::make_unique<EngineRequest>(SamplingParams{}, OutputText(nullptr, {}, 1));
    std::vector<AdapterUse> uses;
    for (const auto& name : names) uses.push_back({name});
    auto adapters = registry_.resolve(uses);
    EXPECT_TRUE(adapters.ok()) << adapters.status().to_string();
    made->adapters = std::move(*adapters);
    made->tokens = {1, 2, 3};
    return made;
  }
  void wait_for_loads(int64_t loads) {
    do {
      std::this_thread::yield();
      residency_->take_changes();
    } while (residency_->loads() < loads);
  }
  void end(std::unique_ptr<EngineRequest> request) {
    residency_->leave(*request);
    request = nullptr;
    residency_->take_changes();
  }
  // A name of the root whose content is known and was dropped for "1" since.
  std::unique_ptr<EngineRequest> dropped_then_wanted(const std::string& name) {
    for (const auto& one : {name, std::string("1")}) {
      auto first = request({one});
      EXPECT_EQ(residency_->arrive(*first), AdapterResidency::Arrival::kWaiting);
      wait_for_loads(residency_->loads() + 1);
      EXPECT_EQ(residency_->arrive(*first), AdapterResidency::Arrival::kKnown);
      end(std::move(first));
    }
    return request({name});
  }

  AdapterFiles files_;
  lora::LoRAConfig config_;
  AdapterExecutor executor_{files_.targets(), config_};
  const std::shared_ptr<AdapterRegistry> made_ =
      make_registry(files_.targets(), {.load = {.config = config_}, .root = files_.root().string()});
  AdapterRegistry& registry_ = *made_;
  std::optional<AdapterResidency> residency_;
};

TEST_F(ResidencyTest, WhatWasLoadingWhenItsLastUserLeftIsDropped) {
  auto last = dropped_then_wanted("0");
  const int64_t loads = residency_->loads();
  ASSERT_EQ(residency_->arrive(*last), AdapterResidency::Arrival::kKnown);  // and its load begins
  ASSERT_TRUE(registry_.unload("0").ok());
  end(std::move(last));
  wait_for_loads(loads + 1);
  EXPECT_EQ(residency_->content_count(), 1U);
  ASSERT_TRUE(registry_.unload("1").ok());
  residency_->take_changes();
  EXPECT_EQ(residency_->content_count(), 0U);
  EXPECT_EQ(residency_->resident_bytes(), 0);
}

TEST_F(ResidencyTest, WhatFailedToLoadGivesItsRoomBack) {
  auto last = dropped_then_wanted("0");
  const int64_t loads = residency_->loads();
  std::filesystem::resize_file(files_.root() / "0" / "adapter_model.safetensors", 5000);
  ASSERT_EQ(residency_->arrive(*last), AdapterResidency::Arrival::kKnown);
  EXPECT_GT(residency_->resident_bytes(), 0) << "its room is kept while it loads";
  wait_for_loads(loads + 1);
  EXPECT_EQ(residency_->resident_bytes(), 0);
  // A newcomer's try does not keep the older one waiting.
  auto newcomer = request({"0"});
  (void)residency_->arrive(*newcomer);
  EXPECT_EQ(residency_->acquire(*last), Residency::kFailed);
  EXPECT_EQ(last->adapter_status.code(), Code::kCorrupt) << last->adapter_status.to_string();
  end(std::move(last));
  end(std::move(newcomer));
  wait_for_loads(loads + 2);
  EXPECT_EQ(residency_->resident_bytes(), 0);
  (void)registry_.unload("0").ok();
  ASSERT_TRUE(registry_.unload("1").ok());
  residency_->take_changes();
  EXPECT_EQ(residency_->content_count(), 0U);
}

TEST_F(ResidencyTest, WhoLeavesWhileOneOfItsAdaptersIsUnknownLeavesNothing) {
  end(dropped_then_wanted("0"));
  const int64_t loads = residency_->loads();
  auto parked = request({"0", "2"});
  ASSERT_EQ(residency_->arrive(*parked), AdapterResidency::Arrival::kWaiting);
  for (const char* name : {"0", "1", "2"}) ASSERT_TRUE(registry_.unload(name).ok()) << name;
  residency_->take_changes();
  EXPECT_GE(residency_->content_count(), 1U) << "the request keeps its version";
  end(std::move(parked));
  wait_for_loads(loads + 1);
  EXPECT_EQ(residency_->content_count(), 0U);
  EXPECT_EQ(residency_->resident_bytes(), 0);
}

TEST_F(ResidencyTest, AnUnloadWhileAPinWaitsForItsLoadLeavesNothing) {
  end(dropped_then_wanted("0"));
  const int64_t loads = residency_->loads();
  std::atomic<bool> answered = false;
  std::thread caller([&] {
    (void)registry_.pin("2", true).ok();
    answered = true;
  });
  while (residency_->loads() == loads) residency_->take_changes();  // "2" is being loaded by its first use
  for (const char* name : {"0", "1", "2"}) ASSERT_TRUE(registry_.unload(name).ok()) << name;
  while (!answered) residency_->take_changes();
  caller.join();
  residency_->take_changes();
  EXPECT_EQ(residency_->content_count(), 0U);
  EXPECT_EQ(residency_->resident_bytes(), 0);
}

// Equal files keep the content alive, but not the pin.
TEST_F(ResidencyTest, APinGrantedToANameThatHadGoneGoesWithIt) {
  files_.write("same", 4, static_cast<uint64_t>('0'));
  for (const char* name : {"0", "same"}) {
    auto first = request({name});
    (void)residency_->arrive(*first);
    wait_for_loads(residency_->loads() + 1);
    end(std::move(first));
  }
  ASSERT_EQ(residency_->content_count(), 1U);
  std::atomic<bool> wished = false;
  registry_.set_wake([&] { wished = true; });
  std::thread caller([&] { EXPECT_TRUE(registry_.pin("same", true).ok()); });
  while (!wished) std::this_thread::yield();
  ASSERT_TRUE(registry_.unload("same").ok());
  residency_->take_changes();
  caller.join();
  auto other = request({"1"});
  (void)residency_->arrive(*other);
  wait_for_loads(residency_->loads() + 1);
  ASSERT_EQ(residency_->arrive(*other), AdapterResidency::Arrival::kKnown);
  EXPECT_EQ(residency_->acquire(*other), Residency::kResident) << "a pin that is nobody's is in its way";
  residency_->release(*other);
  end(std::move(other));
}

TEST_F(ResidencyTest, KeysOfFactorsAreUsedAgain) {
  auto first = dropped_then_wanted("0");
  int32_t largest = 0;
  for (int i = 0; i < 50; ++i) {
    auto next = request({"0"});
    next->adapters.front().scale = 1.0F + 0.01F * static_cast<float>(i + 1);
    ASSERT_EQ(residency_->arrive(*next), AdapterResidency::Arrival::kKnown);
    EXPECT_EQ(next->adapter_ids.size(), 1U);
    EXPECT_NE(next->adapter_key, next->adapter_ids.front());
    if (i == 0) largest = next->adapter_key;
    EXPECT_EQ(next->adapter_key, largest);
    end(std::move(next));
  }
}

}  // namespace
}  // namespace choral::engine
