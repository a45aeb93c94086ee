#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quant/quant_config.h"

namespace choral::quant {
namespace {

const std::string kExpert = "model.layers.11.mlp.experts.3.gate_up_proj";

Result<std::unique_ptr<QuantConfig>> read(const std::string& skipped, std::string_view wish = "auto") {
  const auto config = io::ConfigMap::parse_json(
      fmt::format(R"({{"quantization_config": {{"quant_method": "mxfp4", "modules_to_not_convert": {}}}}})", skipped),
      "config.json");
  CHORAL_CHECK(config.ok(), config.status().message());
  return make_quant_config(*config, wish);
}

// What a layer asks a file for.
std::vector<std::string> tensors_of(const QuantConfig& config, const std::string& layer, LayerKind kind = LayerKind::kLinear) {
  const LinearShape shape{.in = 64, .out = {48}, .shard_names = {layer}, .bias = true};
  const auto method = config.get_quant_method(kind, shape);
  CHORAL_CHECK(method.ok(), method.status().message());
  ParameterSet parameters;
  (*method)->create_weights(shape, parameters);
  std::vector<std::string> names;
  for (const char* name : {"weight", "weight_packed", "weight_scale", "bias"}) {
    if (parameters.contains(name)) names.push_back(name);
  }
  return names;
}

TEST(Mxfp4Config, ExpertsAreQuantisedAndNothingElse) {
  using ::testing::ElementsAre;
  const auto config = read(R"(["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(tensors_of(**config, kExpert), ElementsAre("weight_packed", "weight_scale", "bias"));
  EXPECT_THAT(tensors_of(**config, "model.layers.0.self_attn.q_proj"), ElementsAre("weight", "bias"));
  EXPECT_THAT(tensors_of(**config, "model.layers.0.mlp.router", LayerKind::kRouter), ElementsAre("weight", "bias"));
  EXPECT_THAT(tensors_of(**config, "lm_head", LayerKind::kLmHead), ElementsAre("weight", "bias"));
}

TEST(Mxfp4Config, ListedExpertsStayFloat) {
  for (const char* skipped : {R"(["model.layers.11.mlp.experts"])", R"(["model.layers.1[0-9]"])", R"(["mlp.experts"])"}) {
    EXPECT_THAT(tensors_of(**read(skipped), kExpert), ::testing::Contains("weight")) << skipped;
  }
  for (const char* skipped : {"null", "[]", R"(["model.layers.1", "model.layers.11.mlp.router"])"}) {
    EXPECT_THAT(tensors_of(**read(skipped), kExpert), ::testing::Contains("weight_packed")) << skipped;
  }
}

TEST(Mxfp4Config, WhatItCannotDoIsNamed) {
  EXPECT_THAT(read("[]", "w8a16").status().message(), ::testing::HasSubstr("quantised"));
  EXPECT_THAT(read(R"(["("])").status().message(), ::testing::HasSubstr("modules_to_not_convert"));
}

}  // namespace
}  // namespace choral::quant
