#include "io/text_half.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace choral::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TextHalf, NamesAreThoseOfATextModel) {
  EXPECT_EQ(text_half_name("language_model.model.layers.3.mlp.up_proj.weight"), "model.layers.3.mlp.up_proj.weight");
  EXPECT_EQ(text_half_name("model.language_model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(text_half_name("language_model.lm_head.weight"), "lm_head.weight");
  for (const char* name : {"model.norm.weight", "vision_tower.language_model.model.x", "language_model.x", ""}) {
    EXPECT_EQ(text_half_name(name), name);
  }
}

TEST(TextHalf, NamesHaveAWayBack) {
  for (const char* like : {"language_model.model.layers.0.x", "model.language_model.layers.0.x"}) {
    const std::string whole = whole_model_name("model.layers.3.mlp.up_proj", like);
    EXPECT_THAT(whole, HasSubstr("language_model."));
    EXPECT_EQ(text_half_name(whole), "model.layers.3.mlp.up_proj");
  }
  EXPECT_EQ(whole_model_name("lm_head", "language_model.model.norm"), "language_model.lm_head");
  EXPECT_EQ(whole_model_name("lm_head", "model.language_model.norm"), "lm_head");
  EXPECT_EQ(whole_model_name("model.norm", "model.layers.0.x"), "model.norm");
  EXPECT_EQ(whole_model_name("model.norm", ""), "model.norm");
}

// config.json of the model of four billions, but for its vision.
TEST(TextHalf, AbsentFieldsAreTheClasses) {
  const auto whole = ConfigMap::parse_json(
      R"({"architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106], "model_type": "gemma3",
          "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
                          "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
          "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152}})",
      "config.json");
  ASSERT_TRUE(whole.ok());
  const auto text = text_half_config(*whole);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_THAT(*text->get_strings("architectures"), ElementsAre("Gemma3ForCausalLM"));
  EXPECT_EQ(*text->get_int("hidden_size"), 2560);
  EXPECT_EQ(*text->get_int("num_attention_heads"), 8);
  EXPECT_EQ(*text->get_int("num_key_value_heads"), 4);
  EXPECT_EQ(*text->get_int("head_dim"), 256);
  EXPECT_EQ(*text->get_int("vocab_size"), 262208);
  EXPECT_EQ(*text->get_int("sliding_window"), 1024);
  EXPECT_EQ(*text->get_string("torch_dtype"), "bfloat16");
  EXPECT_THAT(*text->get_int_or_ints("eos_token_id"), ElementsAre(1, 106));
  EXPECT_FALSE(text->contains("vision_config"));
}

ConfigMap half_of(const std::string& json) {
  const auto text = text_half_config(*ConfigMap::parse_json(json, "config.json"));
  EXPECT_TRUE(text.ok()) << text.status().message();
  return *text;
}

TEST(TextHalf, TheTypeTellsMistralsHalvesApart) {
  const auto of_type = [](const std::string& type) {
    return R"({"architectures": ["Mistral3ForConditionalGeneration"], "text_config": {"hidden_size": 64)" + type + "}}";
  };
  EXPECT_THAT(*half_of(of_type("")).get_strings("architectures"), ElementsAre("MistralForCausalLM"));
  EXPECT_THAT(*half_of(of_type(R"(, "model_type": "mistral")")).get_strings("architectures"), ElementsAre("MistralForCausalLM"));
  const auto newest = half_of(of_type(R"(, "model_type": "ministral3")"));
  EXPECT_THAT(*newest.get_strings("architectures"), ElementsAre("Ministral3ForCausalLM"));
  EXPECT_EQ(*newest.get_int("head_dim"), 128);
  EXPECT_EQ(*newest.get_int("hidden_size"), 64);
  const auto unknown = text_half_config(*ConfigMap::parse_json(of_type(R"(, "model_type": "mistral9")"), "config.json"));
  EXPECT_THAT(unknown.status().message(), HasSubstr("text_config.model_type is 'mistral9'"));
}

TEST(TextHalf, EitherHalfMayTieTheHead) {
  for (const char* whole : {"", R"(, "tie_word_embeddings": false)", R"(, "tie_word_embeddings": true)"}) {
    for (const char* half : {"", R"(, "tie_word_embeddings": false)", R"(, "tie_word_embeddings": true)"}) {
      const auto text = half_of(fmt::format(
          R"({{"architectures": ["Qwen3VLForConditionalGeneration"]{}, "text_config": {{"hidden_size": 64{}}}}})", whole, half));
      const bool tied = std::string(whole).ends_with("true") || std::string(half).ends_with("true");
      EXPECT_EQ(*text.get_bool_or("tie_word_embeddings", false), tied) << whole << half;
    }
  }
}

TEST(TextHalf, PositionsOfATextAreTheSameInEachSection) {
  const auto old = half_of(
      R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"], "hidden_size": 3584, "model_type": "qwen2_5_vl", "rope_theta": 1e6,
          "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vision_config": {}, "tie_word_embeddings": false})");
  EXPECT_THAT(*old.get_strings("architectures"), ElementsAre("Qwen2ForCausalLM"));
  EXPECT_EQ(old.find("rope_scaling")->to_json(), R"({"type": "default"})");
  EXPECT_EQ(*old.get_int("hidden_size"), 3584);
  EXPECT_FALSE(old.contains("vision_config"));
  const auto newer = half_of(
      R"({"architectures": ["Qwen3VLForConditionalGeneration"], "tie_word_embeddings": true,
          "text_config": {"rope_parameters": {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default",
                                              "rope_theta": 5e6}}})");
  EXPECT_EQ(newer.find("rope_parameters")->to_json(), R"({"rope_type": "default", "rope_theta": 5000000.0})");
  EXPECT_FALSE(newer.contains("rope_theta")) << "the class's beside the file's";
  EXPECT_TRUE(*newer.get_bool("tie_word_embeddings"));
  const auto stretched = half_of(
      R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"], "hidden_size": 8,
          "rope_scaling": {"type": "yarn", "factor": 4.0, "mrope_section": [16, 24, 24]}})");
  EXPECT_EQ(stretched.find("rope_scaling")->to_json(), R"({"type": "yarn", "factor": 4.0})");
}

// config.json of Qwen3.5-4B, shortened.
TEST(TextHalf, QwensThatSeeHaveAHalfToo) {
  const auto whole = ConfigMap::parse_json(
      R"({"architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": 248056, "model_type": "qwen3_5",
          "text_config": {"hidden_size": 2560, "intermediate_size": 9216, "model_type": "qwen3_5_text",
                          "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "mrope_section": [11, 11, 10]}},
          "tie_word_embeddings": true, "vision_config": {"depth": 24}})",
      "config.json");
  ASSERT_TRUE(whole.ok());
  const auto text = text_half_config(*whole);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_THAT(*text->get_strings("architectures"), ElementsAre("Qwen3_5ForCausalLM"));
  EXPECT_EQ(*text->get_string("model_type"), "qwen3_5_text");
  EXPECT_EQ(*text->get_int("hidden_size"), 2560);
  EXPECT_EQ(*text->get_int("num_hidden_layers"), 32);
  EXPECT_EQ(*text->get_bool("tie_word_embeddings"), true);
  EXPECT_FALSE(text->contains("vision_config"));
}

TEST(TextHalf, OtherConfigurationsStay) {
  const auto plain = ConfigMap::parse_json(R"({"architectures": ["LlamaForCausalLM"], "text_config": 3})", "config.json");
  EXPECT_EQ(text_half_config(*plain)->to_json(), plain->to_json());
  const auto broken =
      ConfigMap::parse_json(R"({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": 3})", "config.json");
  EXPECT_THAT(text_half_config(*broken).status().message(), HasSubstr("text_config"));
}

}  // namespace
}  // namespace choral::io
