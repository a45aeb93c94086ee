// The whole story of a device that moves in, told by its notes in order, and the forms it takes: with and without its fused
// library, with and without each fused operator, with patches; loaded, used, retired and loaded again.
#include <algorithm>
#include <filesystem>

#include "engine/biased_norms_test.h"
#include "plugins/plugin_engine.h"
#include "support/temp_dir.h"
#include "support/tiny_models.h"

namespace choral::plugins {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class StartupTest : public PluginTest {
 protected:
  // The place of the first note that holds `part`.
  static size_t place(const std::vector<std::string>& notes, const std::string& part) {
    for (size_t i = 0; i < notes.size(); ++i) {
      if (notes[i].find(part) != std::string::npos) return i;
    }
    ADD_FAILURE() << "no note says '" << part << "'";
    return notes.size();
  }
};

TEST_F(StartupTest, FromChoiceToFusedOperatorAndBackToItsComposition) {
  const testing::TempDir folder;
  const auto library = folder.path() / "fused.so";
  fs::copy_file(fs::path(CHORAL_TEST_PLUGINS) / "libchoral_ref_fused.so", library);
  const Variable fused("CHORAL_REF_FUSED", library.string()), patch("CHORAL_REF_PATCH", "1");

  auto with = load(options("ref_device"));
  const auto& notes = with->info().notes;
  const std::vector<std::string> story{"device: ref_device",               // chosen
                                       "config: worker_cls = ref_device",  // updated
                                       "worker: ref_device",               // found in the registry
                                       "patch rotary-on-host: op",         // named, listed
                                       "fused operators declared:",        // placeholders
                                       "CustomOp rms_norm overridden",     // overrides
                                       "rotary_embedding is served by the CPU: patch rotary-on-host",
                                       "fused: add_rms_norm at",  // the model is built
                                       "KV cache:"};
  for (size_t i = 1; i < story.size(); ++i) EXPECT_LT(place(notes, story[i - 1]), place(notes, story[i])) << story[i];
  EXPECT_TRUE(with->device_notes().empty()) << "the library loads at the first forward pass, not before";

  const auto first = answers(*with);
  EXPECT_THAT(with->device_notes(), Contains(HasSubstr("fused operators loaded: add_rms_norm")));
  expect_equal(first, cpu_answers());

  with.reset();  // and with it the library
  fs::remove(library);
  const auto without = load(options("ref_device"));
  expect_equal(answers(*without), first);
  EXPECT_THAT(without->device_notes(),
              Contains(AllOf(HasSubstr("add_rms_norm is served by its composition"), HasSubstr(library.string()))));
}

// The device's wish for weights that the user left open; the user's own wish stands.
TEST_F(StartupTest, ADeviceMayWishForAQuantisation) {
  const Variable wish("CHORAL_REF_QUANTIZATION", "w8a8_dynamic");
  auto quantised = options("cpu");
  quantised.quantization = "w8a8_dynamic";
  const auto device = load(options("ref_device"));
  EXPECT_THAT(device->info().notes, Contains("config: quantization = w8a8_dynamic (was auto)"));
  constexpr double kAnotherCode = 0.05;  // an element of x between two int8 codes falls to either by the last bit before it
  expect_equal(answers(*device), answers(*load(quantised)), kAnotherCode);
  auto own = options("ref_device");
  own.quantization = "w8a16";
  EXPECT_THAT(load(own)->info().notes, ::testing::Not(Contains(HasSubstr("config: quantization"))));

  const Variable unknown("CHORAL_REF_QUANTIZATION", "w1a1");
  const auto refused = LLM::load(options("ref_device"));
  EXPECT_THAT(refused.status().message(), HasSubstr("--quantization w1a1: choose auto"));
}

// Each fused operator switched off, and all of them: the same answers.
TEST_F(StartupTest, EveryFusedOperatorCanBeSwitchedOff) {
  const auto wanted = cpu_answers();
  for (const char* fuse : {"none", "-add_rms_norm", "-qk_norm_rope", "-rope_write_kv", "-qk_norm_rope,+rope_write_kv"}) {
    SCOPED_TRACE(fuse);
    for (const char* device : {"ref_device", "cpu"}) {
      auto wish = options(device);
      wish.fuse = fuse;
      expect_equal(answers(*load(wish)), wanted);
    }
  }
}

// Norms with a bias: the device's fused operator, its parts on the device, and the CPU's.
TEST_F(StartupTest, NormsWithABiasRunOnTheDevice) {
  const engine::BiasedNorms written;
  const auto biased = [&](const char* device, const char* fuse) {
    auto wish = options(device);
    wish.model = written.options().model;
    wish.fuse = fuse;
    return wish;
  };
  const auto wanted = answers(*load(biased("cpu", "none")));
  const auto fused = load(biased("ref_device", "all"));
  EXPECT_THAT(fused->info().notes, Contains(HasSubstr("fused: add_rms_norm_bias at 7 places, by ref_device")));
  expect_equal(answers(*fused), wanted);
  expect_equal(answers(*load(biased("ref_device", "none"))), wanted);
}

TEST_F(StartupTest, NativeFormsRunOnADeviceTheHostCannotRead) {
  auto wish = options("ref_device");
  wish.custom_ops = "none";
  expect_equal(answers(*load(wish)), cpu_answers());
}

TEST_F(StartupTest, WhatTheUserSwitchedOnIsInsistedOn) {
  auto wish = options("cpu");
  wish.fuse = "+add_rms_norm";
  const auto llm = load(wish);
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("fused: add_rms_norm at 8 places, by cpu")));
  expect_equal(answers(*llm), cpu_answers());
}

TEST_F(StartupTest, MistakesInTheListsAreNamed) {
  auto wish = options("cpu");
  wish.fuse = "-add_rms_nrom";
  EXPECT_THAT(LLM::load(wish).status().message(), HasSubstr("did you mean add_rms_norm"));
  wish.fuse = "all";
  wish.custom_ops = "-rms_nrom";
  EXPECT_THAT(LLM::load(wish).status().message(), HasSubstr("did you mean rms_norm"));
}

// Rows of a device keep the invariant too: alone and in a batch, the same bits.
TEST_F(StartupTest, ARowDoesNotDependOnItsNeighbours) {
  const auto llm = load(options("ref_device"));
  for (const auto& output : answers(*llm)) {
    auto alone = engine::greedy_request(output.prompt_token_ids, 8);
    alone.cache_salt = "alone";
    const auto single = llm->generate({alone}).front();
    engine::expect_same_bits(single, output);
  }
}

class FamiliesTest : public PluginTest, public ::testing::WithParamInterface<std::string> {};

// What a device has no operator for is the host's, on copies.
TEST_P(FamiliesTest, AnswerAsOnTheCpu) {
  expect_equal(answers(*load(options("ref_device", GetParam()))), cpu_answers(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Models, FamiliesTest, ::testing::ValuesIn(testing::tiny_models()),
                         [](const auto& tested) { return testing::family_of(tested.param); });

TEST_F(StartupTest, LoadUseRetireLoad) {
  const auto wanted = cpu_answers("tiny-llama3");
  for (int round = 0; round < 3; ++round) expect_equal(answers(*load(options("ref_device", "tiny-llama3"))), wanted);
  const auto one = load(options("ref_device", "tiny-llama3")), other = load(options("ref_device", "tiny-llama3"));
  expect_equal(answers(*one), wanted);
  expect_equal(answers(*other), wanted);
}

}  // namespace
}  // namespace choral::plugins
