#include "quant/formats/fp8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace choral::quant {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

io::ConfigMap parse(const std::string& text) {
  auto config = io::ConfigMap::parse_json(text, "config.json");
  CHORAL_CHECK(config.ok(), config.status().message());
  return *config;
}

// The config of a model with this quantization_config.
Result<std::unique_ptr<QuantConfig>> read(const std::string& members) {
  return make_quant_config(parse(fmt::format(R"({{"quantization_config": {{{}}}}})", members)), "auto");
}

Result<std::unique_ptr<QuantConfig>> read_fp8_with(const std::string& members) {
  return read(R"("quant_method": "fp8")" + (members.empty() ? members : ", " + members));
}

Result<std::unique_ptr<QuantConfig>> read_group(const std::string& group) {
  return read(R"("quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": {"targets": ["Linear"], )" +
              group + "}}");
}

// The shape of a layer's scales, {} for a layer that has none.
Shape scales_of(const QuantConfig& config, const std::string& layer, LayerKind kind = LayerKind::kLinear) {
  const LinearShape shape{.in = 300, .out = {200}, .shard_names = {layer}};
  const auto method = config.get_quant_method(kind, shape);
  CHORAL_CHECK(method.ok(), method.status().message());
  ParameterSet parameters;
  (*method)->create_weights(shape, parameters);
  return parameters.contains("weight_scale") ? parameters.get("weight_scale").shards.front().shape : Shape{};
}

TEST(Fp8Config, BlocksComeFromTheDescription) {
  EXPECT_EQ(scales_of(**read_fp8_with(""), "a"), (Shape{200, 1}));
  EXPECT_EQ(scales_of(**read_fp8_with(R"("weight_block_size": null)"), "a"), (Shape{200, 1}));
  EXPECT_EQ(scales_of(**read_fp8_with(R"("weight_block_size": [128, 128], "fmt": "e4m3", "activation_scheme": "dynamic")"), "a"),
            (Shape{2, 3}));
  EXPECT_EQ(scales_of(**read_fp8_with(R"("weight_block_size": [64, 32], "activation_scheme": "static")"), "a"), (Shape{4, 10}));
  EXPECT_EQ(scales_of(**read_fp8_with(R"("weight_block_size": [1, 32], "scale_fmt": "ue8m0")"), "a"), (Shape{200, 10}));
}

TEST(Fp8Config, ScalesOfBlocksNeedNoWord) {
  const LinearShape shape{.in = 300, .out = {200}, .shard_names = {"a"}};
  const auto others = [&](const std::string& members) {
    ParameterSet parameters;
    const auto config = *read_fp8_with(members);
    (*config->get_quant_method(LayerKind::kLinear, shape))->create_weights(shape, parameters);
    return parameters.get("weight_scale_inv").shards.front().other_shapes;
  };
  EXPECT_THAT(others(""), Contains(Shape{2, 3}));
  EXPECT_THAT(others(R"("weight_block_size": [64, 64])"), IsEmpty());
}

TEST(Fp8Config, ListedLayersStayFloat) {
  const std::string q = "model.layers.1.self_attn.q_proj", gate = "model.layers.11.mlp.gate_proj";
  struct Case {
    const char* list;
    bool q, gate;
  };
  for (const char* key : {"modules_to_not_convert", "ignored_layers"}) {
    for (const auto& [list, q_is, gate_is] : {
             Case{R"([])", true, true},
             Case{R"(["model.layers.1.self_attn.q_proj"])", false, true},  // a whole name
             Case{R"(["model.layers.1"])", false, true},                   // a prefix of whole components: not layer 11
             Case{R"(["q_proj", "mlp.gate"])", false, true},               // an end
             Case{R"(["model.layers.\\d+.mlp"])", true, false},
             Case{R"(["layers"])", true, true},
         }) {
      SCOPED_TRACE(list);
      const auto config = read_fp8_with(fmt::format(R"("{}": {})", key, list));
      ASSERT_TRUE(config.ok()) << config.status().message();
      EXPECT_EQ(scales_of(**config, q) != Shape{}, q_is);
      EXPECT_EQ(scales_of(**config, gate) != Shape{}, gate_is);
      EXPECT_EQ(scales_of(**config, "lm_head", LayerKind::kLmHead), Shape{});
      EXPECT_EQ(scales_of(**config, "model.embed_tokens", LayerKind::kEmbedding), Shape{});
    }
  }
}

TEST(Fp8Config, MembersOfAFusedLayerAgree) {
  const auto config = *read_fp8_with(R"("ignored_layers": ["m.k_proj"])");
  const LinearShape shape{.in = 4, .out = {4, 4}, .shard_names = {"m.q_proj", "m.k_proj"}};
  EXPECT_THAT(config->get_quant_method(LayerKind::kLinear, shape).status().message(),
              AllOf(HasSubstr("m.q_proj and m.k_proj"), HasSubstr("one matrix")));
}

TEST(Fp8Config, SaysThatActivationsStayFloat) {
  const auto config = *read_fp8_with(R"("activation_scheme": "static")");
  EXPECT_THAT(config->notes(), ElementsAre(HasSubstr("quantization_config.activation_scheme: activations stay float")));
}

TEST(Fp8Config, WhatIsNotReadIsNamedWithItsKey) {
  const auto error = [](const char* members) {
    const auto config = read_fp8_with(members);
    EXPECT_FALSE(config.ok()) << members;
    return config.ok() ? std::string() : config.status().message();
  };
  EXPECT_THAT(error(R"("activation_scheme": "per_token")"),
              AllOf(HasSubstr("config.json: quantization_config.activation_scheme is per_token"), HasSubstr("dynamic, static")));
  EXPECT_THAT(error(R"("fmt": "e5m2")"), HasSubstr("quantization_config.fmt is e5m2"));
  EXPECT_THAT(error(R"("weight_block_size": [128])"), HasSubstr("weight_block_size is [128], which is not read"));
  EXPECT_THAT(error(R"("weight_block_size": [128, 100])"), HasSubstr("weight_block_size is [128, 100]"));
  EXPECT_THAT(error(R"("weight_block_size": [0, 128])"), HasSubstr("weight_block_size"));
  EXPECT_THAT(error(R"("scale_fmt": "int8")"), HasSubstr("quantization_config.scale_fmt is int8"));
  EXPECT_THAT(error(R"("weight_block_size": 128)"), HasSubstr("weight_block_size"));
  EXPECT_THAT(error(R"("modules_to_convert": ["model.embed_tokens"])"),
              AllOf(HasSubstr("modules_to_convert"), HasSubstr("model.embed_tokens")));
  EXPECT_THAT(error(R"("ignored_layers": ["(q_proj"])"), HasSubstr("quantization_config.ignored_layers"));
  EXPECT_THAT(error(R"("ignored_layers": "lm_head")"), HasSubstr("ignored_layers"));
}

constexpr const char* kWeights = R"("weights": {"num_bits": 8, "type": "float", "symmetric": true, "strategy": )";

TEST(Fp8Group, EveryPresetIsRead) {
  struct Case {
    const char *strategy, *activations;
    Shape scales;
  };
  for (const auto& [strategy, activations, scales] : {
           Case{R"("tensor"})", R"({"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false})", {200, 1}},
           Case{R"("channel"})", R"({"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true})", {200, 1}},
           Case{R"("channel"})", "null", {200, 1}},
           Case{R"("group", "group_size": 32})",
                R"({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32, "dynamic": true})",
                {200, 10}},
           Case{R"("block", "block_structure": [128, 128]})",
                R"({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128, "dynamic": true})",
                {2, 3}},
       }) {
    const auto config = read_group(fmt::format(R"({}{}, "input_activations": {})", kWeights, strategy, activations));
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(scales_of(**config, "model.layers.0.self_attn.q_proj"), scales);
    EXPECT_EQ(scales_of(**config, "lm_head", LayerKind::kLmHead), Shape{});
  }
}

// Layers of two groups that are quantised alike are computed as one; in other blocks, they are not.
TEST(Fp8Group, GroupsAlikeShareAScheme) {
  const auto fused = [](const char* first, const char* second) {
    const auto config = *read(fmt::format(
        R"("quant_method": "compressed-tensors", "config_groups": {{"a": {{"targets": ["q"], {0}{1}}}, "b": {{"targets": ["k"], {0}{2}}}}})",
        kWeights, first, second));
    return config->get_quant_method(LayerKind::kLinear, {.in = 4, .out = {4, 4}, .shard_names = {"q", "k"}}).ok();
  };
  EXPECT_TRUE(fused(R"("tensor"})", R"("channel"})"));
  EXPECT_TRUE(fused(R"("block", "block_structure": [64, 64]})", R"("block", "block_structure": [64, 64]})"));
  EXPECT_FALSE(fused(R"("block", "block_structure": [64, 64]})", R"("block", "block_structure": [128, 64]})"));
  EXPECT_FALSE(fused(R"("tensor"})", R"("block", "block_structure": [128, 64]})"));
}

TEST(Fp8Group, WhatIsNotReadIsNamedWithItsKey) {
  const auto error = [](const std::string& group) {
    const auto config = read_group(group);
    EXPECT_FALSE(config.ok()) << group;
    return config.ok() ? std::string() : config.status().message();
  };
  const std::string where = "config.json: quantization_config.config_groups.group_0.";
  EXPECT_THAT(error(R"("weights": {"num_bits": 4, "type": "float", "strategy": "tensor"})"),
              HasSubstr(where + "weights is float4"));
  EXPECT_THAT(error(fmt::format(R"({}"group", "group_size": 48}})", kWeights)), HasSubstr(where + "weights.group_size is 48"));
  EXPECT_THAT(error(fmt::format(R"({}"group", "group_size": -1}})", kWeights)), HasSubstr(where + "weights.group_size"));
  EXPECT_THAT(error(fmt::format(R"({}"token"}})", kWeights)), HasSubstr(where + "weights.strategy is token"));
  EXPECT_THAT(error(fmt::format(R"({}"block", "block_structure": [128, 100]}})", kWeights)),
              HasSubstr(where + "weights.block_structure is [128, 100]"));
  EXPECT_THAT(error(fmt::format(R"({}"block"}})", kWeights)), HasSubstr("weights.block_structure"));
  EXPECT_THAT(error(fmt::format(R"({}"tensor", "dynamic": true}})", kWeights)), HasSubstr("weights.dynamic is true"));
  EXPECT_THAT(error(R"("weights": {"type": "float", "symmetric": false})"), HasSubstr("weights.symmetric is false"));
  EXPECT_THAT(error(fmt::format(R"({}"tensor"}}, "input_activations": {{"type": "int"}})", kWeights)),
              HasSubstr(where + "input_activations.type is int"));
  EXPECT_THAT(error(fmt::format(R"({}"tensor"}}, "input_activations": {{"type": "float", "strategy": "channel"}})", kWeights)),
              HasSubstr("input_activations.strategy is channel"));
}

}  // namespace
}  // namespace choral::quant
