// What Gemma 4's configs build, in older and newer spellings, and what they are refused for.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "io/model_config.h"
#include "io/text_half.h"
#include "models/registry.h"
#include "platform/cpu_context_test.h"

namespace choral::models {
namespace {

using ::testing::HasSubstr;

class Gemma4Test : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Model>> make(const std::string& json) {
    CHORAL_TRY(const auto config, io::ConfigMap::parse_json(json, "config.json"));
    CHORAL_TRY(const auto text, io::text_half_config(config));
    CHORAL_TRY(const auto normalised, io::normalise_model_config(text));
    return make_model(normalised, options_);
  }
  std::string refusal(const std::string& json) { return make(json).status().message(); }
  // Of each layer that has keys: heads, size, window.
  std::vector<std::string> shapes(const std::string& json) {
    const auto model = make(json);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    std::vector<std::string> out;
    if (!model.ok()) return out;
    for (const auto& shape : (*model)->kv_shapes()) {
      out.push_back(fmt::format("{}x{} {}", shape.kv_heads, shape.key_dim, shape.window));
    }
    return out;
  }
  std::map<std::string, std::vector<int64_t>> outputs(const std::string& json) {
    std::map<std::string, std::vector<int64_t>> rows;
    const auto model = make(json);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    if (!model.ok()) return rows;
    for (const auto& target : (*model)->lora_targets()) {
      for (const auto& member : target.members) rows[target.name].push_back(member.out);
    }
    return rows;
  }

  platform::testing::CpuContext cpu_;
  std::unique_ptr<quant::QuantConfig> quant_config_ = *quant::make_quant_config({}, "auto");
  platform::CustomOpConfig custom_ops_;
  platform::LayerOverrides overrides_;
  ModelOptions options_{cpu_.session(), *quant_config_, custom_ops_, overrides_, 0};
};

using Shapes = std::vector<std::string>;

std::string gemma4(const std::string& more, const std::string& name = "Gemma4ForCausalLM") {
  return R"({"architectures": [")" + name + R"("], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 100, "max_position_embeddings": 64,
             "hidden_size_per_layer_input": 0)" +
         more + "}";
}
const std::string kTypes = R"(, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])";

TEST_F(Gemma4Test, LayersOfTwoKindsHaveHeadsOfTheirOwn) {
  EXPECT_EQ(shapes(gemma4(kTypes + R"(, "global_head_dim": 32, "sliding_window": 16)")),
            (Shapes{"2x24 16", "2x32 0", "2x24 16", "2x32 0"}));
  EXPECT_EQ(shapes(gemma4(R"(, "sliding_window": 16)")), (Shapes{"2x24 16", "2x24 16", "2x24 16", "2x512 0"}))
      << "the last layer has no window, and the class's heads";
  const std::string heads = R"(, "num_global_key_value_heads": 1, "global_head_dim": 32, "sliding_window": 16)";
  EXPECT_EQ(shapes(gemma4(kTypes + heads)), (Shapes{"2x24 16", "2x32 0", "2x24 16", "2x32 0"}));
  EXPECT_EQ(shapes(gemma4(kTypes + heads + R"(, "attention_k_eq_v": true)")), (Shapes{"2x24 16", "1x32 0", "2x24 16", "1x32 0"}));
  EXPECT_EQ(shapes(gemma4(kTypes, "Gemma4UnifiedForCausalLM")), (Shapes{"2x24 1024", "2x512 0", "2x24 1024", "2x512 0"}));
}

TEST_F(Gemma4Test, NewerFilesNameLayers) {
  const auto by_layer = [](const std::string& layers) { return gemma4(kTypes + R"(, "per_layer_config": )" + layers); };
  EXPECT_EQ(
      shapes(by_layer(R"({"1": {"head_dim": 32, "num_key_value_heads": 1}, "03": {"head_dim": 32, "num_key_value_heads": 1}})")),
      (Shapes{"2x24 512", "1x32 0", "2x24 512", "1x32 0"}));
  for (const char* alike : {"{}", "null"}) {
    EXPECT_EQ(shapes(by_layer(alike)), (Shapes{"2x24 512", "2x24 0", "2x24 512", "2x24 0"})) << alike;
  }
  EXPECT_THAT(refusal(by_layer(R"({"1": {"head_dim": 32}})")), HasSubstr("layer 1 has heads of another size"));
  EXPECT_THAT(refusal(by_layer(R"({"0": {"head_dim": 32}})")), HasSubstr("layer 2 has heads of another size"));
  EXPECT_THAT(refusal(by_layer(R"({"4": {"head_dim": 32}})")), HasSubstr("per_layer_config.4: the model has no such layer"));
  EXPECT_THAT(refusal(by_layer(R"({"x": {"head_dim": 32}})")), HasSubstr("no such layer"));
  EXPECT_THAT(refusal(by_layer(R"({"1": {"intermediate_size": 32}})")), HasSubstr("intermediate_size"));
  EXPECT_THAT(refusal(by_layer(R"({"1": {"num_key_value_heads": 3}, "3": {"num_key_value_heads": 3}})")),
              HasSubstr("num_attention_heads (4) is no multiple of the 3"));
}

TEST_F(Gemma4Test, TheLastLayersShareKeysAndMayHaveAWiderMlp) {
  const std::string shared =
      gemma4(kTypes + R"(, "global_head_dim": 32, "num_kv_shared_layers": 2, "use_double_wide_mlp": true)");
  EXPECT_EQ(shapes(shared), (Shapes{"2x24 512", "2x32 0"}));
  const auto rows = outputs(shared);
  EXPECT_EQ(rows.at("model.layers.1.self_attn.qkv_proj"), (std::vector<int64_t>{128, 64, 64}));
  EXPECT_EQ(rows.at("model.layers.2.self_attn.q_proj"), (std::vector<int64_t>{96}));
  EXPECT_EQ(rows.count("model.layers.2.self_attn.k_norm"), 0U);
  EXPECT_EQ(rows.at("model.layers.1.mlp.gate_up_proj"), (std::vector<int64_t>{96, 96}));
  EXPECT_EQ(rows.at("model.layers.3.mlp.gate_up_proj"), (std::vector<int64_t>{192, 192}));
  EXPECT_THAT(refusal(gemma4(kTypes + R"(, "num_kv_shared_layers": 3)")), HasSubstr("layer 1 would look at the keys"));
  EXPECT_THAT(refusal(gemma4(kTypes + R"(, "num_kv_shared_layers": 4)")), HasSubstr("num_kv_shared_layers"));
}

TEST_F(Gemma4Test, KeysAreValuesInLayersWithoutAWindow) {
  const auto rows = outputs(gemma4(kTypes + R"(, "global_head_dim": 32, "attention_k_eq_v": true)"));
  EXPECT_EQ(rows.at("model.layers.1.self_attn.qk_proj"), (std::vector<int64_t>{128, 64}));
  EXPECT_EQ(rows.at("model.layers.0.self_attn.qkv_proj"), (std::vector<int64_t>{96, 48, 48}));
}

TEST_F(Gemma4Test, PerLayerEmbeddingsAreAnEmbeddingForAdapters) {
  std::string config = gemma4(R"(, "vocab_size_per_layer_input": 100)");
  config.replace(config.find("_layer_input\": 0"), 16, "_layer_input\": 8");
  const auto rows = outputs(config);
  EXPECT_EQ(rows.at("model.embed_tokens_per_layer"), (std::vector<int64_t>{100}));
  EXPECT_EQ(rows.at("model.per_layer_model_projection"), (std::vector<int64_t>{32}));
  EXPECT_EQ(rows.at("model.layers.3.per_layer_input_gate"), (std::vector<int64_t>{8}));
  EXPECT_EQ(rows.at("model.layers.3.per_layer_projection"), (std::vector<int64_t>{64}));
  config.replace(config.find("_layer_input\": 100"), 18, "_layer_input\": 99 ");
  EXPECT_THAT(refusal(config), HasSubstr("vocab_size_per_layer_input is 99, for a vocabulary of 100"));
}

TEST_F(Gemma4Test, ExpertsStandBesideTheMlp) {
  const std::string experts = R"(, "enable_moe_block": true, "num_experts": 3, "top_k_experts": 2, "moe_intermediate_size": 40)";
  const auto rows = outputs(gemma4(experts));
  EXPECT_EQ(rows.at("model.layers.0.mlp.gate_up_proj"), (std::vector<int64_t>{96, 96}));
  EXPECT_EQ(rows.at("model.layers.0.router.proj"), (std::vector<int64_t>{3}));
  EXPECT_EQ(rows.at("model.layers.0.experts.2.gate_up_proj"), (std::vector<int64_t>{80}));
  EXPECT_EQ(rows.count("model.layers.0.router.norm"), 0U) << "adapters know no norm of this name";
  EXPECT_THAT(refusal(gemma4(R"(, "enable_moe_block": true, "num_experts": 3)")), HasSubstr("num_experts_per_tok"));
}

TEST_F(Gemma4Test, WhatItCannotDoIsNamed) {
  EXPECT_THAT(refusal(gemma4(R"(, "use_bidirectional_attention": "all")")), HasSubstr("use_bidirectional_attention is 'all'"));
  EXPECT_TRUE(make(gemma4(R"(, "use_bidirectional_attention": "vision")")).ok());
  EXPECT_THAT(
      refusal(gemma4(R"(, "rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 2.0}})")),
      HasSubstr("rope_type is 'yarn'; known in this family"));
  EXPECT_THAT(refusal(gemma4(R"(, "rope_parameters": {"full_attention": {"rope_type": "default"}})")), HasSubstr("rope_theta"));
  EXPECT_THAT(refusal(gemma4(R"(, "final_logit_softcapping": 0)")), HasSubstr("final_logit_softcapping"));
  EXPECT_THAT(refusal(gemma4(R"(, "hidden_activation": "relu6")")), HasSubstr("relu6"));
}

TEST_F(Gemma4Test, TheTextHalfOfWhatSees) {
  for (const std::string kind : {"", "Unified"}) {
    std::string text = gemma4(kTypes);
    const std::string classes = R"("architectures": ["Gemma4ForCausalLM"],)";
    text.replace(text.find(classes), classes.size(), "");
    const auto model = make(R"({"architectures": ["Gemma4)" + kind + R"(ForConditionalGeneration"], "model_type": "gemma4",
        "vision_config": {"hidden_size": 8}, "text_config": )" +
                            text + "}");
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    EXPECT_EQ((*model)->kv_shapes().front().window, kind.empty() ? 512 : 1024);
    for (const auto* module : (*model)->modules()) EXPECT_NE(module->prefix(), "lm_head") << "tied";
  }
}

}  // namespace
}  // namespace choral::models
