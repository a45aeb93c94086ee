// Broken plug-ins: each ends in a message that says what is wrong, and in the CPU's answers or a refusal, as configured.
#include <chrono>
#include <thread>

#include "plugins/plugin_engine.h"

namespace choral::plugins {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

struct Fault {
  const char* name;
  const char* message;  // part of what the user reads
};

class UnusableTest : public PluginTest, public ::testing::WithParamInterface<Fault> {};

// By name: refused. By "auto": the CPU answers, and the notes say why.
TEST_P(UnusableTest, IsRefusedByNameAndGivesWayOtherwise) {
  const std::string name = std::string("ref_fault_") + GetParam().name;
  const Variable allowed("CHORAL_PLUGINS", name);
  const auto refused = LLM::load(options(name)).status();
  EXPECT_THAT(refused.message(), HasSubstr(GetParam().message));
  EXPECT_THAT(refused.message(), HasSubstr(name));

  const auto llm = load(options("auto"));
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr(GetParam().message)));
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("device: cpu")));
  expect_equal(answers(*llm), cpu_answers());

  auto strict = options("auto");
  strict.require_device = true;
  EXPECT_THAT(LLM::load(strict).status().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(Faults, UnusableTest,
                         ::testing::Values(Fault{"wrong_version", "speaks version 99."},
                                           Fault{"truncated", "bytes, but version 2.0 has"},
                                           Fault{"missing_symbol", "exports no choral_plugin_query"},
                                           Fault{"garbage", "of the plug-in interface, this host 2."},
                                           Fault{"null", "found this host unsuitable"}, Fault{"probe_fails", "its probe failed"},
                                           Fault{"no_device", "no device"}, Fault{"open_fails", "ref_fault_open_fails"},
                                           Fault{"no_empty", "allocate gave neither 0 bytes nor an error"},
                                           Fault{"dirty", "allocate gave memory that is not zero-filled"},
                                           Fault{"bad_override", "no layer declares a CustomOp 'SiluAndMulClamp'"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

class FaultsTest : public PluginTest {};

TEST_F(FaultsTest, ANewerMinorJustWorks) { expect_equal(answers(*load(options("ref_fault_newer_minor"))), cpu_answers()); }

// Its thread is refused as soon as it meets a moment in which the host does not call, while the device is opened or later.
TEST_F(FaultsTest, ADeviceThatTakesTheHostsThreadsBehindItsBackIsToldSo) {
  auto llm = LLM::load(options("ref_fault_stray_loop"));
  Status told = llm.status();
  for (int round = 0; told.ok() && round < 1000; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    told = answers(**llm, 1).front().status;
  }
  EXPECT_EQ(told.code(), Code::kInvalidArgument) << told.to_string();
  EXPECT_THAT(told.message(),
              AllOf(HasSubstr("ref_fault_stray_loop"), HasSubstr("parallel_for was called while the host calls nothing")));
}

TEST_F(FaultsTest, AnOperatorWithWrongNumbersIsRefusedByName) {
  const auto llm = load(options("ref_fault_wrong_numbers"));
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("rms_norm is served by the CPU: it disagrees with the reference")));
  expect_equal(answers(*llm), cpu_answers());
}

// Invariant 1: a last bit that depends on the other rows of the call is no rounding.
TEST_F(FaultsTest, AnOperatorWhoseRowsDependOnTheirCompanyIsRefusedByName) {
  const auto llm = load(options("ref_fault_company"));
  for (const char* op : {"rms_norm", "rms_norm_heads"}) {
    EXPECT_THAT(llm->info().notes,
                Contains(HasSubstr(std::string(op) + " is served by the CPU: a row alone has other bits than in company: ")));
  }
  expect_equal(answers(*llm), cpu_answers());
}

// One feature of an operator's arguments, which the device passes over or refuses: found before a model needs it.
struct Unserved {
  const char* name;
  const char* op;
  const char* feature;  // as the host says it
};

class FeaturesTest : public PluginTest, public ::testing::WithParamInterface<Unserved> {
 protected:
  void expect_note(const char* why) {
    const auto llm = load(options("ref_fault_features"));
    const auto [name, op, feature] = GetParam();
    EXPECT_THAT(llm->info().notes, Contains(AllOf(HasSubstr(std::string(op) + " is served by the CPU: "),
                                                  HasSubstr(std::string(why) + " with " + feature))));
    expect_equal(answers(*llm), cpu_answers());
  }
};

constexpr Unserved kWindow{"sliding_window", "paged_attention", "a sliding window"},
    kSoftcap{"softcap", "paged_attention", "a soft-cap"}, kSinks{"sinks", "paged_attention", "sinks"},
    kPartial{"partial_rotary", "rotary_embedding", "partial rotary"},
    kInterleaved{"interleaved_rotary", "rotary_embedding", "interleaved rotary"};
const auto name_of = [](const auto& tested) { return std::string(tested.param.name); };

class PassedOverTest : public FeaturesTest {};
TEST_P(PassedOverTest, IsFoundOut) {
  const Variable ignored("CHORAL_REF_IGNORE", GetParam().name);
  expect_note("it disagrees with the reference");
}
INSTANTIATE_TEST_SUITE_P(Features, PassedOverTest,
                         ::testing::Values(kWindow, kSoftcap, kSinks, kPartial, kInterleaved,
                                           Unserved{"bf16", "matmul", "bf16 weights"},
                                           Unserved{"bf16_stack", "bgmv_shrink", "a stack of bf16"}),
                         name_of);

class RefusedTest : public FeaturesTest {};
TEST_P(RefusedTest, IsSaid) {
  const Variable refused("CHORAL_REF_REFUSE", GetParam().name);
  expect_note("it failed");
}
INSTANTIATE_TEST_SUITE_P(Features, RefusedTest,
                         ::testing::Values(kWindow, kSoftcap, kSinks, kPartial, kInterleaved,
                                           Unserved{"bf16_stack", "bgmv_expand_slice", "a stack of bf16"},
                                           Unserved{"v_head_dim", "paged_attention", "values narrower than keys"},
                                           Unserved{"values_in_keys", "paged_attention", "values in keys"}),
                         name_of);

TEST_F(FaultsTest, EveryFeatureOfTheReferenceDeviceConforms) {
  const auto llm = load(options("ref_fault_features"));
  for (const auto& note : llm->info().notes) {
    EXPECT_EQ(note.find("disagrees"), std::string::npos) << note;
  }
}

// Whether the device says so or would not know it.
TEST_F(FaultsTest, AnInt8CacheIsTheHosts) {
  auto on_cpu = options("cpu");
  on_cpu.kv_cache_dtype = "int8";
  const auto wanted = answers(*load(on_cpu));
  for (const auto& [device, why] : {std::pair("ref_device", "the cache holds f32, f16 or bf16"),
                                    std::pair("ref_fault_unasked", "an int8 KV cache is the host's")}) {
    auto changed = options(device);
    changed.kv_cache_dtype = "int8";
    const auto llm = load(changed);
    for (const char* op : {"write_kv", "paged_attention"}) {
      EXPECT_THAT(llm->info().notes, Contains(AllOf(HasSubstr(std::string(op) + " is served by the CPU: "), HasSubstr(why))));
    }
    expect_equal(answers(*llm), wanted);
    changed.strict = true;
    EXPECT_THAT(LLM::load(changed).status().message(), HasSubstr("--strict"));
  }
}

TEST_F(FaultsTest, AnOperatorThatFailsIsTheCpusFromThenOn) {
  const Variable at("CHORAL_REF_FAULT_AT", "300");  // in the first steps, behind the calls that try the fused operators
  const auto llm = load(options("ref_fault_fails_at_100"));
  expect_equal(answers(*llm), cpu_answers());
  EXPECT_THAT(llm->device_notes(), Contains(HasSubstr("it failed: ")));
}

TEST_F(FaultsTest, ALostDeviceEndsItsRequestsAndSaysWhy) {
  const Variable at("CHORAL_REF_FAULT_AT", "200");
  const auto llm = load(options("ref_fault_lost_at_100"));
  for (const auto& output : answers(*llm, 64)) {
    EXPECT_EQ(output.status.code(), Code::kUnavailable) << output.status.to_string();
    EXPECT_THAT(output.status.message(), HasSubstr("ref_fault_lost_at_100"));
  }
  EXPECT_THAT(llm->device_notes(), Contains(HasSubstr("device lost")));
  // The engine still stands: it refuses in the same words.
  EXPECT_EQ(answers(*llm).front().status.code(), Code::kUnavailable);
}

TEST_F(FaultsTest, AStepTooLargeForTheDeviceEndsAloneAndSaysWhy) {
  const Variable at("CHORAL_REF_FAULT_AT", "300");
  const auto llm = load(options("ref_fault_full_at_100"));
  const auto before = answers(*llm, 64);  // past the mark, within the memory that there is
  for (int round = 0; round < 2; ++round) {
    std::vector<Request> wide;  // one step, wider than the device's first block of memory for steps
    for (const int32_t token : {7, 8}) {
      wide.push_back(engine::greedy_request(std::vector<int32_t>(480, token), 1));
      wide.back().sampling.prompt_logprobs = 1;
    }
    for (const auto& output : llm->generate(std::move(wide))) {
      EXPECT_EQ(output.status.code(), Code::kResourceExhausted) << output.status.to_string();
      EXPECT_THAT(output.status.message(), HasSubstr("--max-num-batched-tokens"));
      EXPECT_THAT(output.status.message(), HasSubstr("ref_fault_full_at_100: ref_device: no room for "));
    }
    expect_equal(answers(*llm, 64), before);
  }
}

TEST_F(FaultsTest, ASlowPluginIsWaitedFor) { expect_equal(answers(*load(options("ref_fault_slow_load"))), cpu_answers()); }

}  // namespace
}  // namespace choral::plugins
