// A device whose memory is the host's too, and devices that say how much they have without a function to ask. In this mode the
// reference device's memory is out of the host's reach as long as something is queued: a touch too early ends the test.
#include "plugins/plugin_adapters.h"
#include "plugins/plugin_engine.h"

namespace choral::plugins {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class UnifiedMemoryTest : public PluginTest {
 protected:
  // The plan of an engine on this device, or why there is none.
  static std::string plan_on(const std::string& device) {
    auto wish = options(device);
    std::string plan;
    wish.on_progress = [&](const LoadProgress& progress) {
      if (progress.phase == "memory") plan = progress.detail;
    };
    auto llm = LLM::load(wish);
    return llm.ok() ? plan : llm.status().message();
  }
};

// Operators of the host's work where the rows are, the same bits come out, and nothing is copied back.
TEST_F(UnifiedMemoryTest, TheHostWorksInTheDevicesMemory) {
  const auto copied = load(options("ref_device"));
  const auto wanted = answers(*copied);
  EXPECT_GT(copied->stats().host_copies, 0);
  const Variable accessible("CHORAL_REF_HOST_ACCESSIBLE", "1");
  const auto llm = load(options("ref_device"));
  expect_equal(answers(*llm), wanted, 0);
  EXPECT_EQ(llm->stats().host_copies, 0);
}

TEST_F(UnifiedMemoryTest, WhereTheDeviceDoesItAllTheHostReadsTokensInPlace) {
  const Variable accessible("CHORAL_REF_HOST_ACCESSIBLE", "1"), all("CHORAL_REF_COMPLETE", "1");
  const auto llm = load(options("ref_device"));
  expect_equal(answers(*llm), cpu_answers());
  EXPECT_EQ(llm->stats().host_copies, 0);
}

TEST_F(UnifiedMemoryTest, SoDoesOneThatFallsBack) {
  const Variable accessible("CHORAL_REF_HOST_ACCESSIBLE", "1"), at("CHORAL_REF_FAULT_AT", "300");
  const auto llm = load(options("ref_fault_fails_at_100"));
  expect_equal(answers(*llm), cpu_answers());
  EXPECT_THAT(llm->device_notes(), Contains(HasSubstr("it failed: ")));
}

TEST_F(UnifiedMemoryTest, MixturesOfExpertsAndCachesOfLatentsToo) {
  const Variable accessible("CHORAL_REF_HOST_ACCESSIBLE", "1");
  for (const char* model : {"tiny-deepseek-v2", "tiny-qwen3moe"}) {
    expect_equal(answers(*load(options("ref_device", model))), cpu_answers(model));
  }
}

TEST_F(UnifiedMemoryTest, AdaptersOnTheDeviceAndOnTheHost) {
  const choral::testing::TempDir folder;
  const auto with_adapters = [&](const std::string& device) {
    auto wish = options(device);
    wish.adapters = {{"pairs", write_of_rank(folder, 4)}, {"dora", write_dora(folder)}};
    return load(wish);
  };
  const auto ask = [](LLM& llm) {
    std::vector<Request> requests;
    for (const char* name : {"", "pairs", "dora"}) {
      requests.push_back(engine::greedy_request({5, 6, 7, 8}, 8));
      if (*name != '\0') requests.back().adapters = {{name}};
    }
    return llm.generate(std::move(requests));
  };
  const auto wanted = ask(*with_adapters("cpu"));
  const Variable accessible("CHORAL_REF_HOST_ACCESSIBLE", "1");
  for (const char* device : {"ref_device", "ref_fault_bare"}) expect_equal(ask(*with_adapters(device)), wanted);
  const Variable refused("CHORAL_REF_REFUSE", "bf16_stack");
  expect_equal(ask(*with_adapters("ref_fault_features")), wanted);
}

TEST_F(UnifiedMemoryTest, WhatTheProbeSaysIsWhatThePlanGoesBy) {
  const Variable size("CHORAL_REF_MEMORY_MIB", "512");
  EXPECT_THAT(plan_on("ref_fault_bare"),
              AllOf(HasSubstr("on the device weights"), HasSubstr("of 51")));  // steps have some already
  const Variable accessible("CHORAL_REF_HOST_ACCESSIBLE", "1");
  EXPECT_THAT(plan_on("ref_device"), HasSubstr("on the device weights")) << "it has a capacity of its own";
  EXPECT_THAT(plan_on("ref_fault_bare"), HasSubstr(" free (the device ref_fault_bare)")) << "the machine's";
}

}  // namespace
}  // namespace choral::plugins
