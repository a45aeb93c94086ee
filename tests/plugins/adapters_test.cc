// Adapters in a device's own memory: the engine's answers are the CPU's, a row's bits are its own in any company, and a device
// whose operators on stacks are wrong leaves adapters to the host.
#include <filesystem>
#include <fstream>
#include <set>

#include "plugins/plugin_adapters.h"
#include "plugins/plugin_engine.h"

namespace choral::plugins {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class AdaptersTest : public PluginTest {
 protected:
  AdaptersTest() {
    for (const int64_t rank : {2, 11}) specs_.push_back({fmt::format("rank{}", rank), write_of_rank(folder_, rank)});
    specs_.push_back({"dora", write_dora(folder_)});
    specs_.push_back({"norms", write_norms(folder_, "norms", {"input_layernorm", "q_norm"})});
  }

  EngineOptions with_adapters(const std::string& device) {
    auto wish = options(device);
    wish.adapters = specs_;
    wish.enable_prefix_caching = false;
    return wish;
  }
  // The base, each adapter, one with two factors, and mixes; prompts of several lengths.
  static std::vector<Request> every_kind() {
    std::vector<Request> requests;
    const std::vector<std::vector<AdapterUse>> voices{{},
                                                      {{"rank2"}},
                                                      {{"rank11"}},
                                                      {{"dora"}},
                                                      {{"norms"}},
                                                      {{"rank2", 0.5F}},
                                                      {{"rank2", 0.5F}, {"dora", -0.5F}},
                                                      {{"rank11"}, {"rank2", 2.0F}, {"dora", 0.25F}}};
    int length = 1;
    for (const auto& voice : voices) {
      auto request = engine::greedy_request(engine::random_prompt(length, static_cast<uint32_t>(length)), 6);
      request.adapters = voice;
      requests.push_back(std::move(request));
      length += 9;
    }
    return requests;
  }

  const testing::TempDir folder_;
  std::vector<AdapterSpec> specs_;
};

TEST_F(AdaptersTest, ADeviceThatHoldsThemGivesTheCpusAnswers) {
  const auto llm = load(with_adapters("ref_device"));
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("in slots of the device's memory, as float32")));
  expect_equal(llm->generate(every_kind()), load(with_adapters("cpu"))->generate(every_kind()));
  EXPECT_THAT(llm->device_notes(), Not(Contains(HasSubstr("on the host"))));
}

TEST_F(AdaptersTest, ARowHasTheSameBitsInEveryCompany) {
  const auto llm = load(with_adapters("ref_device"));
  const auto together = llm->generate(every_kind());
  const auto requests = every_kind();
  const auto fresh = load(with_adapters("ref_device"));
  for (size_t i = requests.size(); i-- > 0;) {
    SCOPED_TRACE(i);
    engine::expect_same_bits(fresh->generate({requests[i]}).front(), together[i]);
  }
}

// Whoever finds no slot waits: on the host its last bits would be others. Nor does a preempted request lose its slot.
TEST_F(AdaptersTest, NoAnswerIsComputedByTheDeviceAndByTheHost) {
  auto wish = with_adapters("ref_device");
  wish.max_model_len = 96;
  const auto roomy = load(wish);
  const auto wanted = roomy->generate(every_kind());
  wish.enable_prefix_caching = true;
  for (const int64_t kv_blocks : {100, 5}) {
    SCOPED_TRACE(kv_blocks);
    wish.adapter_memory_bytes = kv_blocks == 5 ? 0 : 600'000;  // four slots of rank 16, not eight
    wish.kv_cache_bytes = roomy->info().kv_cache_bytes / (roomy->info().kv_cache_tokens / 32) * kv_blocks;
    const auto llm = load(wish);
    for (int round = 0; round < 2; ++round) {
      const auto answers = llm->generate(every_kind());
      for (size_t i = 0; i < answers.size(); ++i) {
        SCOPED_TRACE(i);
        engine::expect_same_bits(answers[i], wanted[i]);
      }
    }
    EXPECT_THAT(llm->device_notes(), Not(Contains(HasSubstr("on the host"))));
    EXPECT_EQ(engine::stats_at_rest(*llm).preemptions > 0, kv_blocks == 5);
  }
}

// Copies beside steps are held back for as long as the file is there.
class HeldAdaptersTest : public AdaptersTest {
 protected:
  HeldAdaptersTest() { std::ofstream(held_) << "held"; }
  void let_go() const { std::filesystem::remove(held_); }

 private:
  const std::filesystem::path held_ = folder_.path() / "held";
  const Variable hold_{"CHORAL_REF_HOLD", held_.string()};
};

TEST_F(HeldAdaptersTest, WhileAnAdapterComesTheOthersGoOn) {
  auto wish = with_adapters("ref_device");
  const auto requests = every_kind();
  const auto llm = load(wish);
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("written beside the steps")));
  std::vector<std::unique_ptr<ResponseStream>> late;
  for (size_t i = 1; i < requests.size(); ++i) late.push_back(std::move(*llm->submit(requests[i])));
  const auto base = llm->generate({requests[0], requests[0]});
  EXPECT_EQ(llm->stats().waiting, std::ssize(late));
  let_go();
  const auto fresh = load(wish);
  const auto wanted = fresh->generate(requests);
  for (const auto& answer : base) engine::expect_same_bits(answer, wanted[0]);
  for (size_t i = 0; i < late.size(); ++i) {
    SCOPED_TRACE(i + 1);
    engine::expect_same_bits(late[i]->wait(), wanted[i + 1]);
  }
  expect_equal(wanted, load(with_adapters("cpu"))->generate(requests));
}

TEST_F(HeldAdaptersTest, WhoIsCancelledMeanwhileIsInNobodysWay) {
  auto wish = with_adapters("ref_device");
  wish.adapter_memory_bytes = 600'000;  // four slots
  const auto llm = load(wish);
  const auto requests = every_kind();
  for (size_t i = 1; i < requests.size(); ++i) (*llm->submit(requests[i]))->cancel();
  let_go();
  expect_equal(llm->generate(requests), load(with_adapters("cpu"))->generate(requests));
}

TEST_F(HeldAdaptersTest, AnEngineThatEndsWaitsForNoMoreThanAMatrix) {
  auto llm = load(with_adapters("ref_device"));
  auto late = std::move(*llm->submit(every_kind()[1]));
  llm->generate({every_kind()[0]});  // the other one's copies have begun
  let_go();
  llm.reset();
  const auto ended = late->wait().status;  // it may have come and been answered before the end was asked for
  EXPECT_TRUE(ended.ok() || ended.code() == Code::kUnavailable) << ended.to_string();
}

// A plug-in that does not take copies beside steps is called by one thread.
TEST_F(AdaptersTest, WhereNothingMayBeCopiedBesideStepsAllWait) {
  const auto llm = load(with_adapters("ref_fault_bare"));
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("written between two steps, while all requests wait")));
  expect_equal(llm->generate(every_kind()), load(with_adapters("cpu"))->generate(every_kind()));
  EXPECT_THAT(llm->device_notes(), Not(Contains(HasSubstr("on the host"))));
}

TEST_F(AdaptersTest, ADeviceThatIsLostWhileAnAdapterComesEndsItsRequestAndSaysWhy) {
  const Variable at("CHORAL_REF_FAULT_AT", "200");
  const auto llm = load(with_adapters("ref_fault_lost_at_100"));
  auto base = every_kind()[0];
  base.sampling.max_tokens = 64;
  EXPECT_EQ(llm->generate({base}).front().status.code(), Code::kUnavailable);
  const auto late = llm->generate({every_kind()[1]}).front();
  EXPECT_EQ(late.status.code(), Code::kUnavailable) << late.status.to_string();
  EXPECT_THAT(late.status.message(), HasSubstr("ref_fault_lost_at_100"));
}

TEST_F(AdaptersTest, ADeviceThatComputesThemWronglyLeavesThemToTheHost) {
  const Variable ignored("CHORAL_REF_IGNORE", "bf16_stack");
  const auto llm = load(with_adapters("ref_fault_features"));
  EXPECT_THAT(llm->info().notes, Contains(AllOf(HasSubstr("adapters are computed on the host"), HasSubstr("a stack of bf16"))));
  expect_equal(llm->generate(every_kind()), load(with_adapters("cpu"))->generate(every_kind()));
}

class SlicesTest : public AdaptersTest {
 protected:
  // One that touches every projection, one of other ranks that touches some: alone, together, and the base.
  SlicesTest() {
    specs_ = {{"every", write_pairs(folder_, "every", 5, {kQuery, kKey, kValue, kOutput, kGate, kUp, kDown})},
              {"some", write_pairs(folder_, "some", 3, {kKey, kValue, kUp, kDown})}};
  }
  static std::vector<Request> requests() {
    std::vector<Request> requests;
    for (const auto& voice : std::vector<std::vector<AdapterUse>>{{}, {{"every"}}, {{"some"}}, {{"some"}, {"every", 0.5F}}}) {
      requests.push_back(engine::greedy_request(engine::random_prompt(7, static_cast<uint32_t>(requests.size()) + 1), 12));
      requests.back().adapters = voice;
    }
    return requests;
  }
  static void expect_same_bits(const std::vector<RequestOutput>& a, const std::vector<RequestOutput>& b) {
    for (size_t i = 0; i < b.size(); ++i) engine::expect_same_bits(a.at(i), b[i]);
  }
};

TEST_F(SlicesTest, AreComputedTogetherWithTheBitsOfTheParts) {
  const auto llm = load(with_adapters("ref_device"));
  const auto together = llm->generate(requests());
  EXPECT_THAT(llm->device_notes(),
              Contains(HasSubstr("fused operators loaded: add_rms_norm, add_rms_norm_bias, qk_norm_rope, rope_write_kv, "
                                 "grouped_matmul, lora_shrink, lora_expand")));
  expect_equal(together, load(with_adapters("cpu"))->generate(requests()));
  const Variable no_fused("CHORAL_REF_FUSED", "/no/such/library");
  const auto parts = load(with_adapters("ref_device"));
  expect_same_bits(parts->generate(requests()), together);
  EXPECT_THAT(parts->device_notes(),
              AllOf(Contains(HasSubstr("lora_shrink is served by its composition: ref_device: no fused operators")),
                    Not(Contains(HasSubstr("on the host")))));
}

// One that fails is its parts from then on, on the device.
TEST_F(SlicesTest, AFusedOneThatFailsLeavesTheRestToTheDevice) {
  const auto wanted = load(with_adapters("ref_device"))->generate(requests());
  std::set<std::string> failed;
  for (int call = 300; call < 400 && failed.size() < 2; ++call) {  // behind the vectors of the fused ones
    const Variable at("CHORAL_REF_FAULT_AT", std::to_string(call));
    const auto llm = load(with_adapters("ref_fault_fails_at_100"));
    const auto got = llm->generate(requests());
    const auto notes = llm->device_notes();
    for (const char* op : {"lora_shrink", "lora_expand"}) {
      const std::string note = std::string(op) + " is served by its composition: it failed: ";
      if (!::testing::Matches(Contains(HasSubstr(note)))(notes)) continue;
      failed.insert(op);
      expect_same_bits(got, wanted);
      EXPECT_THAT(notes, Not(Contains(HasSubstr("on the host"))));
    }
  }
  EXPECT_EQ(failed.size(), 2u) << "too few of these calls are of fused operators on stacks";
}

// Whichever operator on stacks fails once, that call is the host's on copies, and adapters are from the next step on.
TEST_F(AdaptersTest, AnOperatorOnStacksThatFailsLeavesThemToTheHost) {
  const Variable no_fused("CHORAL_REF_FUSED", "/no/such/library");
  auto request = every_kind().back();
  request.sampling.max_tokens = 24;  // there are steps after the one that fails
  const auto wanted = load(with_adapters("cpu"))->generate({request});
  std::set<std::string> failed;
  for (int call = 300; call < 400 && failed.size() < 3; ++call) {
    const Variable at("CHORAL_REF_FAULT_AT", std::to_string(call));
    const auto llm = load(with_adapters("ref_fault_fails_at_100"));
    const auto got = llm->generate({request});
    const auto notes = llm->device_notes();
    for (const char* op : {"bgmv_shrink", "bgmv_expand is", "bgmv_expand_slice", "bgmv_scale"}) {
      if (!::testing::Matches(Contains(HasSubstr(op)))(notes)) continue;
      failed.insert(op);
      expect_equal(got, wanted);
      EXPECT_THAT(notes, Contains(HasSubstr("adapters are computed on the host from now on")));
    }
  }
  EXPECT_EQ(failed.size(), 3u) << "too few of these calls are of operators on stacks";
}

}  // namespace
}  // namespace choral::plugins
