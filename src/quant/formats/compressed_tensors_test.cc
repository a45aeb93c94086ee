#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quant/formats/formats.h"

namespace choral::quant {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kInt8 = R"("weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel",
  "dynamic": false, "group_size": null, "observer": "minmax"},
  "input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true})";

Result<std::unique_ptr<QuantConfig>> read(std::string_view targets, std::string_view scheme = kInt8,
                                          std::string_view ignore = "[]") {
  const auto text =
      fmt::format(R"({{"config_groups": {{"group_0": {{"targets": {}, {}}}}}, "ignore": {}}})", targets, scheme, ignore);
  const auto config = io::ConfigMap::parse_json(text, "config.json");
  CHORAL_CHECK(config.ok(), config.status().message());
  return read_compressed_tensors(*config);
}

// What the layers' parameters are called: one that is quantised has scales.
bool is_quantised(const QuantConfig& config, std::vector<std::string> members, LayerKind kind = LayerKind::kLinear) {
  const LinearShape shape{.in = 4, .out = std::vector<int64_t>(members.size(), 4), .shard_names = std::move(members)};
  const auto method = config.get_quant_method(kind, shape);
  CHORAL_CHECK(method.ok(), method.status().message());
  ParameterSet parameters;
  (*method)->create_weights(shape, parameters);
  return parameters.contains("weight_scale");
}

TEST(CompressedTensors, TargetsAreTheClassNamesOrPatterns) {
  const std::string q = "model.layers.0.self_attn.q_proj", up = "model.layers.11.mlp.up_proj";
  struct Case {
    const char* targets;
    const char* ignore;
    bool q, up, head;
  };
  for (const auto& [targets, ignore, q_is, up_is, head_is] : {
           Case{R"(["Linear"])", R"(["lm_head"])", true, true, false},
           Case{R"(["Linear"])", R"(["re:.*lm_head", "re:.*mlp"])", true, false, false},
           Case{R"(["Linear"])", R"([])", true, true, true},
           Case{R"(["model.layers.0.self_attn.q_proj"])", R"([])", true, false, false},
           Case{R"(["re:model\\.layers\\.\\d\\d\\..*"])", R"([])", false, true, false},
           Case{R"(["re:layers"])", R"([])", false, false, false},  // a match begins where the name does
       }) {
    SCOPED_TRACE(fmt::format("{} without {}", targets, ignore));
    const auto config = *read(targets, kInt8, ignore);
    EXPECT_EQ(is_quantised(*config, {q}), q_is);
    EXPECT_EQ(is_quantised(*config, {up}), up_is);
    EXPECT_EQ(is_quantised(*config, {"lm_head"}, LayerKind::kLmHead), head_is);
    EXPECT_FALSE(is_quantised(*config, {"model.embed_tokens"}, LayerKind::kEmbedding));
  }
}

TEST(CompressedTensors, StaticActivationsHaveAScaleInTheFile) {
  const auto config = *read(R"(["Linear"])", R"("weights": {"num_bits": 8, "strategy": "channel"},
    "input_activations": {"num_bits": 8, "strategy": "tensor"})");
  const LinearShape shape{.in = 4, .out = {4}, .shard_names = {"o_proj"}};
  ParameterSet parameters;
  (*config->get_quant_method(LayerKind::kLinear, shape))->create_weights(shape, parameters);
  EXPECT_EQ(parameters.get("input_scale").shards.front().name, "o_proj.input_scale");
}

TEST(CompressedTensors, MembersOfAFusedLayerAgree) {
  const auto config = *read(R"(["Linear"])", kInt8, R"(["m.k_proj"])");
  const LinearShape shape{.in = 4, .out = {4, 4}, .shard_names = {"m.q_proj", "m.k_proj"}};
  const auto method = config->get_quant_method(LayerKind::kLinear, shape);
  ASSERT_FALSE(method.ok());
  EXPECT_THAT(method.status().message(), AllOf(HasSubstr("m.q_proj"), HasSubstr("m.k_proj"), HasSubstr("one matrix")));
  EXPECT_TRUE(is_quantised(*config, {"m.q_proj", "m.v_proj"}));
}

TEST(CompressedTensors, WhatIsNotReadIsNamed) {
  const auto refused = [](std::string_view scheme) { return read(R"(["Linear"])", scheme).status().message(); };
  EXPECT_THAT(
      refused(R"("weights": {"num_bits": 4, "type": "int", "strategy": "block", "group_size": 128})"),
      AllOf(
          HasSubstr("config.json: config_groups.group_0.weights is int4, a scale for each block in the format 'pack-quantized', "
                    "which is not read; what is: int2 to int8"),
          HasSubstr("w8a8_dynamic")));
  EXPECT_THAT(refused(R"("weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
                        "input_activations": {"num_bits": 8, "strategy": "token", "dynamic": true, "symmetric": false})"),
              HasSubstr("input_activations is int8, a scale for each token, asymmetric, dynamic, which is not read"));
  EXPECT_THAT(refused(R"("weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 40})"),
              HasSubstr("weights.group_size is 40, which is not read; what is: multiples of 32"));
  EXPECT_THAT(refused(R"("weights": {"num_bits": 6, "type": "float", "strategy": "channel"})"), HasSubstr("float6"));
  EXPECT_THAT(refused(R"("weights": {"num_bits": 0})"), HasSubstr("num_bits"));
  EXPECT_THAT(refused(R"("targets_": [])"), HasSubstr("weights"));
  EXPECT_THAT(read(R"(["re:(q_proj"])").status().message(),
              AllOf(HasSubstr("group_0.targets"), HasSubstr("no regular expression")));
  const auto none = io::ConfigMap::parse_json(R"({"config_groups": {}})", "config.json");
  EXPECT_THAT(read_compressed_tensors(*none).status().message(), HasSubstr("config_groups has no group"));
  const auto begun = io::ConfigMap::parse_json(R"({"quantization_status": "initialized", "config_groups": {}})", "config.json");
  EXPECT_THAT(read_compressed_tensors(*begun).status().message(), HasSubstr("'initialized'"));
}

}  // namespace
}  // namespace choral::quant
