// Which device an engine takes: by name, by score, by the allow list, or none.
#include "platform/platform_choice.h"
#include "plugins/plugin_engine.h"

namespace choral::plugins {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class DeviceChoiceTest : public PluginTest {};

TEST_F(DeviceChoiceTest, AutoTakesTheOneUsablePluginAndSaysSo) {
  const Variable allowed("CHORAL_PLUGINS", "ref_device");
  EXPECT_THAT(load(options("auto"))->info().notes,
              Contains(HasSubstr("device: ref_device (the plug-in with the highest score)")));
}

TEST_F(DeviceChoiceTest, TheCpuWhenItIsNamed) {
  EXPECT_THAT(load(options("cpu"))->info().notes, Contains(HasSubstr("device: cpu (named by --device)")));
}

TEST_F(DeviceChoiceTest, ANumberChoosesAmongAPluginsDevices) {
  EXPECT_THAT(load(options("ref_device:1"))->info().notes,
              Contains(HasSubstr("device: ref_device (number 1 of 2, named by --device)")));
  for (const char* wrong : {"ref_device:2", "ref_device:", "ref_device:-1", "ref_device:1x", "ref_device:99999999999999999999"}) {
    EXPECT_THAT(LLM::load(options(wrong)).status().message(), HasSubstr("the number of one of its devices: 0 to 1")) << wrong;
  }
  EXPECT_THAT(LLM::load(options("cpu:1")).status().message(), HasSubstr("0, the only one"));
  EXPECT_THAT(LLM::load(options("ref_devise:1")).status().message(), HasSubstr("did you mean ref_device?"));
}

TEST_F(DeviceChoiceTest, EqualScoresAreAnErrorThatListsEveryCandidate) {
  const Variable allowed("CHORAL_PLUGINS", "ref_device,ref_fault_newer_minor,ref_fault_no_device");
  const auto message = LLM::load(options("auto")).status().message();
  EXPECT_THAT(message, HasSubstr("ref_device: usable, score 10"));
  EXPECT_THAT(message, HasSubstr("ref_fault_newer_minor: usable, score 10"));
  EXPECT_THAT(message, HasSubstr("ref_fault_no_device: "));
  EXPECT_THAT(message, HasSubstr("--device"));
}

TEST_F(DeviceChoiceTest, WhatTheAllowListLeavesOutIsNeverLoaded) {
  const Variable allowed("CHORAL_PLUGINS", "other");
  for (const auto& candidate : platform::find_candidates(platform::PluginSearch::from_environment())) {
    if (candidate.name == "cpu") continue;
    EXPECT_EQ(candidate.status.code(), Code::kPermissionDenied) << candidate.name;
  }
  EXPECT_THAT(LLM::load(options("ref_device")).status().message(), HasSubstr("CHORAL_PLUGINS does not list it"));
}

TEST_F(DeviceChoiceTest, ARequiredDeviceIsNotReplacedByTheCpu) {
  const Variable allowed("CHORAL_PLUGINS", "ref_fault_no_device");
  auto wanted = options("auto");
  ASSERT_NE(load(wanted), nullptr);
  wanted.require_device = true;
  const auto status = LLM::load(wanted).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("ref_fault_no_device: "));
}

TEST_F(DeviceChoiceTest, StrictRefusesWhatTheCpuWouldDo) {
  auto wanted = options("ref_device");
  wanted.strict = true;
  const auto message = LLM::load(wanted).status().message();
  EXPECT_THAT(message, HasSubstr("take_rows (ref_device has no such operator)"));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("packed_lora_shrink")));
  const Variable allowed("CHORAL_PLUGINS", "ref_fault_garbage");
  wanted.device = "auto";
  EXPECT_THAT(LLM::load(wanted).status().message(), HasSubstr("--strict: ref_fault_garbage"));
  wanted.device = "cpu";
  EXPECT_NE(load(wanted), nullptr);
}

TEST_F(DeviceChoiceTest, StrictTakesADeviceThatLeavesNothing) {
  const Variable complete("CHORAL_REF_COMPLETE", "1");
  auto wanted = options("ref_device");
  wanted.strict = true;
  const auto llm = load(wanted);
  EXPECT_THAT(llm->info().notes, ::testing::Not(Contains(HasSubstr("the CPU"))));
  expect_equal(answers(*llm), cpu_answers());
}

TEST_F(DeviceChoiceTest, AnUnknownNameSuggestsTheNearest) {
  const Variable allowed("CHORAL_PLUGINS", "ref_device");
  EXPECT_THAT(LLM::load(options("ref_devise")).status().message(), HasSubstr("did you mean ref_device"));
}

TEST_F(DeviceChoiceTest, APluginMayRefuseAConfiguration) {
  auto wanted = options("ref_device");
  wanted.max_num_seqs = 5000;
  EXPECT_THAT(LLM::load(wanted).status().message(), HasSubstr("max_num_seqs"));
}

TEST_F(DeviceChoiceTest, AnUnknownWorkerClassListsTheKnownOnes) {
  auto wanted = options("ref_device");
  wanted.worker_cls = "gpu_worker";
  const auto message = LLM::load(wanted).status().message();
  EXPECT_THAT(message, HasSubstr("gpu_worker"));
  EXPECT_THAT(message, HasSubstr("worker, ref_device"));
}

}  // namespace
}  // namespace choral::plugins
