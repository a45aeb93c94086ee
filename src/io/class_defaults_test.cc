#include "io/class_defaults.h"

#include <gtest/gtest.h>

#include "io/model_config.h"

namespace choral::io {
namespace {

ConfigMap class_config(const std::string& json) { return *ConfigMap::parse_json(json, "config.json"); }

TEST(ClassDefaults, StandWhereTheFileHasNothing) {
  const auto config = with_class_defaults(class_config(R"({"architectures": ["SmolLM3ForCausalLM"], "rope_theta": 5e6})"));
  EXPECT_EQ(*config.get_double("rope_theta"), 5e6);
  EXPECT_EQ(*config.get_int("num_key_value_heads"), 4);
  EXPECT_TRUE(*config.get_bool("tie_word_embeddings"));
  EXPECT_EQ(config.source(), "config.json");
}

TEST(ClassDefaults, ANullStaysOne) {
  const auto config = with_class_defaults(class_config(R"({"architectures": ["GlmForCausalLM"], "head_dim": null})"));
  EXPECT_FALSE(config.contains("head_dim"));
  EXPECT_EQ(*config.get_double("partial_rotary_factor"), 0.5);
}

TEST(ClassDefaults, OtherClassesStay) {
  for (const char* json :
       {R"({"architectures": ["LlamaForCausalLM"]})", R"({"architectures": []})", R"({"architectures": 3})", "{}"}) {
    EXPECT_EQ(with_class_defaults(class_config(json)).to_json(), class_config(json).to_json());
  }
}

// Each spelling of rotation settings comes before the class's.
TEST(ClassDefaults, ComeLast) {
  const auto config = normalise_model_config(class_config(
      R"({"architectures": ["Olmo3ForCausalLM"], "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 7e5},
          "sliding_attention": {"rope_type": "default", "rope_theta": 3e4}}})"));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(*config->get_double("rope_theta"), 7e5);
  EXPECT_EQ(*config->get_double("rope_local_base_freq"), 3e4);
  const auto partial = normalise_model_config(class_config(
      R"({"architectures": ["Glm4ForCausalLM"], "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}})"));
  EXPECT_EQ(*partial->get_double("partial_rotary_factor"), 0.25);
}

}  // namespace
}  // namespace choral::io
