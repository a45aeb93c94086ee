// The residency alone, step by step: what is loaded, held and dropped, and that nothing of those who are gone is left.
#include "engine/adapters/adapter_residency.h"

#include <gmock/gmock.h>

#include <atomic>
#include <optional>
#include <thread>

#include "engine/adapters/adapter_executor_test.h"
#include "engine/adapters/registry_test.h"
#include "engine/adapters/small_adapters_test.h"

namespace choral::engine {
namespace {

using sched::Residency;
using ::testing::HasSubstr;

// The budget holds one adapter and a half.
class ResidencyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"0", "1", "2"}) files_.write(name, name[0]);
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
  AdapterInfo info(const std::string& name) const {
    for (auto& known : registry_.list()) {
      if (known.name == name) return known;
    }
    return {};
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

  std::atomic<bool> wished_ = false;  // outlives the registry, whose wake sets it
  SmallAdapters files_;
  lora::LoRAConfig config_;
  AdapterExecutor executor_;
  const std::shared_ptr<AdapterRegistry> made_ =
      make_registry(files_.targets(), {.load = {.config = config_}, .root = files_.root().string()});
  AdapterRegistry& registry_ = *made_;
  std::optional<AdapterResidency> residency_;
};

TEST_F(ResidencyTest, WhatWasLoadingWhenItsLastUserLeftIsDropped) {
  auto last = dropped_then_wanted("0");
  const int64_t loads = residency_->loads();
  ASSERT_EQ(residency_->arrive(*last), AdapterResidency::Arrival::kKnown);
  EXPECT_FALSE(residency_->prefetch(*last)) << "nothing is dropped ahead of its turn";
  EXPECT_EQ(residency_->acquire(*last), Residency::kLoading);
  ASSERT_TRUE(registry_.unload("0").ok());
  end(std::move(last));
  wait_for_loads(loads + 1);
  EXPECT_EQ(residency_->content_count(), 1U);
  ASSERT_TRUE(registry_.unload("1").ok());
  residency_->take_changes();
  EXPECT_EQ(residency_->content_count(), 0U);
  EXPECT_EQ(residency_->resident_bytes(), 0);
}

// As a request does that is refused after it was told its versions.
TEST_F(ResidencyTest, WhatACallerLetsGoOfLastIsDropped) {
  end(dropped_then_wanted("0"));
  const std::vector<AdapterUse> uses{{.name = "1"}};
  auto refused = registry_.resolve(uses);
  ASSERT_TRUE(refused.ok());
  ASSERT_TRUE(registry_.unload("1").ok());
  residency_->take_changes();
  ASSERT_EQ(residency_->content_count(), 2U) << "the request may still come";
  std::atomic<int> woken = 0;
  registry_.set_wake([&] { ++woken; });
  refused->clear();
  EXPECT_EQ(woken, 1) << "the engine sleeps on";
  registry_.set_wake({});
  residency_->take_changes();
  EXPECT_EQ(residency_->content_count(), 1U);
  EXPECT_EQ(residency_->resident_bytes(), 0);
}

TEST_F(ResidencyTest, WhatFailedToLoadGivesItsRoomBack) {
  auto last = dropped_then_wanted("0");
  const int64_t loads = residency_->loads();
  const auto weights = files_.root() / "0" / "adapter_model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) / 2);
  ASSERT_EQ(residency_->arrive(*last), AdapterResidency::Arrival::kKnown);
  EXPECT_EQ(residency_->acquire(*last), Residency::kLoading);
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
  registry_.set_wake([this] { wished_ = true; });
  std::thread caller([&] {
    EXPECT_EQ(registry_.pin("0", true).code(), Code::kNotFound);
    answered = true;
  });
  while (!wished_) std::this_thread::yield();
  residency_->take_changes();  // the wish, which asks for a load
  for (const char* name : {"0", "1"}) EXPECT_TRUE(registry_.unload(name).ok()) << name;
  wait_for_loads(loads + 1);
  while (!answered) residency_->take_changes();
  caller.join();
  residency_->take_changes();
  EXPECT_EQ(residency_->loads(), loads + 1);
  EXPECT_EQ(residency_->content_count(), 0U);
  EXPECT_EQ(residency_->resident_bytes(), 0);
}

// Equal files keep the content alive, but not the pin.
TEST_F(ResidencyTest, APinGrantedToANameThatHadGoneGoesWithIt) {
  files_.write("same", '0');
  for (const char* name : {"0", "same"}) {
    auto first = request({name});
    (void)residency_->arrive(*first);
    wait_for_loads(residency_->loads() + 1);
    end(std::move(first));
  }
  ASSERT_EQ(residency_->content_count(), 1U);
  registry_.set_wake([this] { wished_ = true; });
  std::thread caller([&] { EXPECT_EQ(registry_.pin("same", true).code(), Code::kNotFound); });
  while (!wished_) std::this_thread::yield();
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

TEST_F(ResidencyTest, AVoiceIsARequestsFromItsArrivalToItsReleaseOrLeave) {
  end(dropped_then_wanted("0"));
  auto held = request({"1"}), waits = request({"1"});
  for (auto* one : {held.get(), waits.get()}) ASSERT_EQ(residency_->arrive(*one), AdapterResidency::Arrival::kKnown);
  EXPECT_EQ(held->voice, waits->voice);
  EXPECT_EQ(residency_->acquire(*held), Residency::kResident);
  EXPECT_EQ(info("1").in_use, 1);
  EXPECT_TRUE(executor_.voices().contains(held->adapter_key));
  residency_->release(*held);
  EXPECT_EQ(held->voice, nullptr);
  EXPECT_EQ(info("1").in_use, 0);
  EXPECT_EQ(executor_.voices().size(), 0u);
  end(std::move(held));  // and leaves nothing twice
  EXPECT_EQ(residency_->acquire(*waits), Residency::kResident);
  residency_->release(*waits);
  end(std::move(waits));
}

TEST_F(ResidencyTest, ARequestWhoseWeightsAreNotTakenHoldsNothing) {
  executor_.most_voices = 1;
  end(dropped_then_wanted("0"));
  auto holder = request({"1"}), other = request({"1"});
  other->adapters.front().scale = 0.5F;
  for (auto* one : {holder.get(), other.get()}) ASSERT_EQ(residency_->arrive(*one), AdapterResidency::Arrival::kKnown);
  EXPECT_EQ(residency_->acquire(*holder), Residency::kResident);
  EXPECT_EQ(residency_->acquire(*other), Residency::kFailed);
  EXPECT_EQ(other->adapter_status.code(), Code::kResourceExhausted) << other->adapter_status.to_string();
  EXPECT_EQ(info("1").in_use, 1);
  end(std::move(other));
  residency_->release(*holder);
  end(std::move(holder));
  for (const char* name : {"0", "1"}) ASSERT_TRUE(registry_.unload(name).ok()) << name;
  residency_->take_changes();
  EXPECT_EQ(residency_->content_count(), 0U);
  EXPECT_EQ(residency_->resident_bytes(), 0);
}

TEST_F(ResidencyTest, NamesOfEqualFilesAreOneContentAndOneVoice) {
  files_.write("same", '1');
  end(dropped_then_wanted("0"));
  auto one = request({"1"}), same = request({"same"});
  ASSERT_EQ(residency_->arrive(*same), AdapterResidency::Arrival::kWaiting) << "only its files tell";
  wait_for_loads(residency_->loads() + 1);
  for (auto* each : {one.get(), same.get()}) ASSERT_EQ(residency_->arrive(*each), AdapterResidency::Arrival::kKnown);
  EXPECT_EQ(one->adapter_key, same->adapter_key);
  EXPECT_EQ(one->prefix_root, same->prefix_root);
  EXPECT_EQ(residency_->content_count(), 2U);
  end(std::move(one));
  end(std::move(same));
}

TEST_F(ResidencyTest, WhatReplacesWeightsIsRefusedInAMixAndScaled) {
  files_.write_replacing("r");
  end(dropped_then_wanted("0"));
  auto alone = request({"r"});
  ASSERT_EQ(residency_->arrive(*alone), AdapterResidency::Arrival::kWaiting);
  wait_for_loads(residency_->loads() + 1);
  EXPECT_EQ(residency_->arrive(*alone), AdapterResidency::Arrival::kKnown);
  auto mixed = request({"r", "1"}), scaled = request({"r"});
  scaled->adapters.front().scale = 0.5F;
  for (auto* refused : {mixed.get(), scaled.get()}) {
    EXPECT_EQ(residency_->arrive(*refused), AdapterResidency::Arrival::kFailed);
    EXPECT_EQ(refused->adapter_status.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused->adapter_status.message(), HasSubstr("cannot be mixed or scaled"));
    EXPECT_EQ(refused->voice, nullptr);
  }
  for (auto* each : {&mixed, &scaled, &alone}) end(std::move(*each));
}

TEST_F(ResidencyTest, AnActivatedAdapterActsFromItsLastInvocationOn) {
  files_.write("activated", 7, R"(,"alora_invocation_tokens":[2,3])");
  const auto ask = [&](std::vector<int32_t> prompt) {
    auto made = request({"activated"});
    made->tokens = std::move(prompt);
    return made;
  };
  auto never = ask({1, 2, 4, 3}), twice = ask({2, 3, 1, 2, 3, 1});
  ASSERT_EQ(residency_->arrive(*never), AdapterResidency::Arrival::kWaiting);
  wait_for_loads(residency_->loads() + 1);
  ASSERT_EQ(residency_->arrive(*never), AdapterResidency::Arrival::kKnown);
  EXPECT_EQ(never->adapter_key, lora::kBaseKey) << "the base answers";
  EXPECT_EQ(never->voice, nullptr);
  ASSERT_EQ(residency_->arrive(*twice), AdapterResidency::Arrival::kKnown);
  EXPECT_NE(twice->adapter_key, lora::kBaseKey);
  EXPECT_EQ(twice->activation_token, 3);
  EXPECT_TRUE(twice->activated_root.has_value());
  end(std::move(never));
  end(std::move(twice));
}

}  // namespace
}  // namespace choral::engine
