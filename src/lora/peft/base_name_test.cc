#include "lora/peft/base_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace choral::lora {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

BaseMatch match(std::string_view made_for, std::vector<std::string> names) { return match_base(made_for, names); }

TEST(BaseName, StorageMakerAndSpellingMakeNoOtherModel) {
  for (const auto& [one, other] : std::vector<std::pair<const char*, const char*>>{
           {"HuggingFaceTB/SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct.Q4_1.gguf"},
           {"smollm2-135m-instruct", "SmolLM2-135M-Instruct.Q4_1"},
           {"smollm2_135m_instruct", "/models/SmolLM2-135M-Instruct/"},
           {"SmolLM2 135M Instruct", "SmolLM2-135M-Instruct-Q4_K_M.gguf"},
           {"unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "meta-llama/Llama-3.2-1B-Instruct"},
           {"meta-llama/Meta-Llama-3-8B-Instruct", "Llama-3-8B-Instruct-GPTQ-Int4"},
           {"cache/hub/models--Qwen--Qwen2.5-0.5B/snapshots/060db6499f32faf8b98477b0a26969ef7d8b9987",
            "Qwen2.5-0.5B-UD-IQ2_XXS-00001-of-00003.gguf"},
           {"C:\\models\\Mistral-7B-v0.1", "mistral-7b-v0.1-w4a16-g128"},
           {"org/Tiny", "/models/tiny/"},
           {"mistralai/Mistral-7B-v0.1", "TheBloke/Mistral-7B-v0.1-AWQ"},
           {"google/gemma-3-1b-it", "gemma-3-1b-it-qat-q4_0.gguf"}}) {
    EXPECT_EQ(match(one, {other}), BaseMatch::kSame) << one << " | " << other;
    EXPECT_EQ(match(other, {one}), BaseMatch::kSame) << other << " | " << one;
    EXPECT_EQ(other_base_note(one, std::vector<std::string>{other}), "");
  }
}

TEST(BaseName, OtherSizesVersionsAndFormsAreOtherModels) {
  for (const auto& [one, other] :
       std::vector<std::pair<const char*, const char*>>{{"HuggingFaceTB/SmolLM2-135M", "SmolLM2-135M-Instruct.Q4_1"},
                                                        {"HuggingFaceTB/SmolLM2-360M-Instruct", "SmolLM2-135M-Instruct.Q4_1"},
                                                        {"meta-llama/Llama-3.1-8B-Instruct", "Meta-Llama-3-8B-Instruct"},
                                                        {"Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-Coder-7B"},
                                                        {"mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-v0.3"},
                                                        {"meta/Llama-3", "meta/Llama-2"},
                                                        {"Qwen/Qwen3-4B-Base", "Qwen/Qwen3-4B"},
                                                        {"someone/other", "tiny-llama3"}}) {
    EXPECT_EQ(match(one, {other}), BaseMatch::kDifferent) << one << " | " << other;
    EXPECT_EQ(match(other, {one}), BaseMatch::kDifferent) << other << " | " << one;
  }
  EXPECT_THAT(other_base_note("org/Other-1B", std::vector<std::string>{"tiny-llama3", "Tiny"}),
              AllOf(HasSubstr("'org/Other-1B'"), HasSubstr("base_model_name_or_path"), HasSubstr("'tiny-llama3'")));
}

TEST(BaseName, OneOfTheModelsNamesIsEnough) {
  EXPECT_EQ(match("org/Tiny", {"my-merge-7b", "org/Tiny"}), BaseMatch::kSame);
  EXPECT_EQ(match("org/Tiny", {"snapshots", "8a1b2c3d4e"}), BaseMatch::kUnknown);
  EXPECT_EQ(match("org/Tiny", {"model", "org/Other"}), BaseMatch::kDifferent);
}

TEST(BaseName, NamesThatSayNothingAreNotCompared) {
  for (const char* name :
       {"", "/", "///", "model.gguf", "out/checkpoint-500", "output_final", "step_1000", "./merged", "base-model", "Q4_K_M.gguf",
        "snapshots/060db6499f32faf8b98477b0a26969ef7d8b9987", "--", "123", "models--"}) {
    EXPECT_EQ(match(name, {"tiny-llama3"}), BaseMatch::kUnknown) << name;
    EXPECT_EQ(match("org/Tiny-1B", {name}), BaseMatch::kUnknown) << name;
  }
  EXPECT_EQ(match("org/Tiny-1B", {}), BaseMatch::kUnknown);
  EXPECT_EQ(match(std::string(1 << 20, 'x'), {"tiny"}), BaseMatch::kDifferent);
}

TEST(BaseName, StrictnessRefusesAnotherBaseAlone) {
  const std::vector<std::string> names{"tiny-llama3", "Tiny"};
  EXPECT_TRUE(check_lora_name("org/tiny-llama3", names).ok());
  EXPECT_TRUE(check_lora_name("checkpoint-500", names).ok()) << "a name that says nothing";
  const Status refused = check_lora_name("org/Other-1B", names);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("--strict: it was made for the base 'org/Other-1B'"), HasSubstr("leave --strict out")));
}

}  // namespace
}  // namespace choral::lora
