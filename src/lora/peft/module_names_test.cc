#include "lora/peft/module_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "lora/peft/module_pattern.h"

namespace choral::lora {
namespace {

using ::testing::HasSubstr;
using Mode = ModulePattern::Mode;

TEST(ModuleNames, EverySpelling) {
  struct Case {
    const char* tail;
    TensorPart part;
  };
  const Case cases[] = {{"lora_A.weight", TensorPart::kLoraA},
                        {"lora_A.default.weight", TensorPart::kLoraA},
                        {"lora_B.weight", TensorPart::kLoraB},
                        {"lora_B.my-adapter.weight", TensorPart::kLoraB},
                        {"lora_B.bias", TensorPart::kLoraBias},
                        {"lora_B.default.bias", TensorPart::kLoraBias},
                        {"lora_embedding_A", TensorPart::kEmbeddingA},
                        {"lora_embedding_A.default", TensorPart::kEmbeddingA},
                        {"lora_embedding_B", TensorPart::kEmbeddingB},
                        {"lora_magnitude_vector", TensorPart::kMagnitude},
                        {"lora_magnitude_vector.weight", TensorPart::kMagnitude},
                        {"lora_magnitude_vector.default", TensorPart::kMagnitude},
                        {"lora_magnitude_vector.default.weight", TensorPart::kMagnitude},
                        {"base_layer.weight", TensorPart::kBaseWeight},
                        {"base_layer.bias", TensorPart::kBaseBias},
                        {"modules_to_save.default.weight", TensorPart::kWeight},
                        {"modules_to_save.default.bias", TensorPart::kBias},
                        {"original_module.weight", TensorPart::kBaseWeight},
                        {"weight", TensorPart::kWeight},
                        {"bias", TensorPart::kBias},
                        {"token_adapter.trainable_tokens_delta", TensorPart::kTokenRows},
                        {"token_adapter.trainable_tokens_delta.default", TensorPart::kTokenRows}};
  for (const auto& [tail, part] : cases) {
    for (const char* prefix : {"", "base_model.model."}) {
      const auto name = parse_tensor_name(std::string(prefix) + "model.layers.3.self_attn.q_proj." + tail);
      ASSERT_TRUE(name) << tail;
      EXPECT_EQ(name->module, "model.layers.3.self_attn.q_proj") << tail;
      EXPECT_EQ(name->part, part) << tail;
    }
  }
  EXPECT_EQ(part_tail(TensorPart::kLoraA), "lora_A.weight");
  EXPECT_EQ(part_tail(TensorPart::kWeight), "weight");
}

TEST(ModuleNames, NoNames) {
  for (const char* name : {"", "weight", ".weight", "lora_A.weight", "base_model.model.weight", "model.q_proj",
                           "model.q_proj.lora_A", "model.q_proj..weight", "q_proj.lora_A..weight"}) {
    const auto parsed = parse_tensor_name(name);
    EXPECT_TRUE(!parsed || parsed->part == TensorPart::kWeight) << name;
  }
  EXPECT_FALSE(parse_tensor_name("model.q_proj.lora_A"));
  EXPECT_FALSE(parse_tensor_name("lora_embedding_A"));
  EXPECT_TRUE(is_expert_module("model.layers.0.mlp.experts.7.up_proj"));
  EXPECT_TRUE(is_expert_module("model.layers.0.mlp.experts"));
  EXPECT_TRUE(is_expert_module("model.layers.0.mlp.experts.base_layer"));
  EXPECT_FALSE(is_expert_module("model.layers.0.mlp.shared_experts.up_proj"));
}

bool matches(std::string_view pattern, Mode mode, std::string_view name) {
  const auto compiled = ModulePattern::compile(pattern, mode);
  CHORAL_CHECK(compiled.ok(), compiled.status().message());
  return *compiled->matches(name);
}

TEST(ModulePattern, KeysMatchAtTheEndBehindADot) {
  const std::string_view name = "model.layers.12.self_attn.q_proj";
  for (const char* key :
       {"q_proj", "self_attn.q_proj", "layers.12.self_attn.q_proj", "model.layers.12.self_attn.q_proj", ".*q_proj",
        "^model.layers.12.self_attn.q_proj", "^model\\.layers\\.12\\.self_attn\\.q_proj$", "q_proj$", "[qk]_proj",
        "layers\\.(1[0-9])\\.self_attn\\.q_proj", "12.self_attn.(q|k)_proj", "layers.1..self_attn.q_proj"}) {
    EXPECT_TRUE(matches(key, Mode::kSuffix, name)) << key;
  }
  for (const char* key : {"proj", "_proj", "attn.q_proj", "2.self_attn.q_proj", "q_pro", "self_attn", "^q_proj",
                          "^layers.12.self_attn.q_proj", "layers.1.self_attn.q_proj", "k_proj",
                          "layers\\.(2[0-9])\\.self_attn\\.q_proj", "model.model.layers.12.self_attn.q_proj"}) {
    EXPECT_FALSE(matches(key, Mode::kSuffix, name)) << key;
  }
  // The same answers from the plain path and from PCRE2: "(?:)" makes a pattern that is not plain.
  for (const char* key :
       {"q_proj", "proj", "self.attn.q.proj", "self\\.attn.q_proj", "^model.layers.12.self_attn.q_proj", "^q_proj", "q_proj$"}) {
    std::string slow(key);
    slow.insert(slow.size() - slow.ends_with('$'), "(?:)");
    ASSERT_FALSE(ModulePattern::compile(slow, Mode::kSuffix)->is_plain());
    ASSERT_TRUE(ModulePattern::compile(key, Mode::kSuffix)->is_plain());
    EXPECT_EQ(matches(key, Mode::kSuffix, name), matches(slow, Mode::kSuffix, name)) << key;
  }
}

TEST(ModulePattern, FullMatchIsTheWholeName) {
  const std::string_view name = "model.layers.0.mlp.up_proj";
  for (const char* pattern : {".*\\.mlp\\.(gate|up|down)_proj", ".*up_proj", "model.layers.0.mlp.up_proj", "x|model.*"}) {
    EXPECT_TRUE(matches(pattern, Mode::kFull, name)) << pattern;
  }
  for (const char* pattern : {"up_proj", "mlp.up_proj", ".*\\.mlp\\.(gate|down)_proj", "model", "model|x"}) {
    EXPECT_FALSE(matches(pattern, Mode::kFull, name)) << pattern;
  }
  EXPECT_TRUE(matches("a|ab", Mode::kFull, "ab"));  // the first alternative alone would not do
}

TEST(ModulePattern, Layers) {
  const auto layer = [](std::string_view pattern, std::string_view name) {
    return *ModulePattern::compile(pattern, Mode::kLayer)->layer_of(name);
  };
  EXPECT_EQ(layer("layers", "model.layers.12.self_attn.q_proj"), 12);
  EXPECT_EQ(layer("h", "model.layers.12.self_attn.q_proj"), -1);
  EXPECT_EQ(layer("(layers|h)", "model.layers.7.mlp.up"), 7);  // a group of its own
  EXPECT_EQ(layer("layers", "layers.7.mlp.up"), -1);           // something stands before it
  EXPECT_EQ(layer("layers", "model.layers.7"), -1);            // and behind it
}

TEST(ModulePattern, HostilePatternsEnd) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string name(60, 'a');
  for (const char* pattern : {"(a+)+[bc]", "(a|aa)+[bc]", "(.*)*[bc]", "(((a*)*)*)*[bc]", "(a*)*\\2[bc]"}) {
    const auto compiled = ModulePattern::compile(pattern, Mode::kSuffix);
    ASSERT_TRUE(compiled.ok());
    const auto result = compiled->matches(name);
    if (!result.ok()) {
      EXPECT_EQ(result.status().code(), Code::kTooLarge);
      EXPECT_THAT(result.status().message(), HasSubstr("too much work"));
    } else {
      EXPECT_FALSE(*result);
    }
  }
  const auto result = ModulePattern::compile("(a+)+[bc]", Mode::kSuffix, 10'000)->matches(name);
  EXPECT_FALSE(result.ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_THAT(ModulePattern::compile("(q_proj", Mode::kSuffix).status().message(), HasSubstr("no regular expression"));
  EXPECT_FALSE(ModulePattern::compile(std::string(5000, '(') + std::string(5000, ')'), Mode::kFull).ok());
  EXPECT_FALSE(ModulePattern::compile(std::string(2000, '(') + std::string(2000, ')'), Mode::kFull).ok());
  EXPECT_FALSE(ModulePattern::compile("(*UTF)x", Mode::kFull).ok());
}

}  // namespace
}  // namespace choral::lora
