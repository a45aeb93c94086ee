#include "quant/quant_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace choral::quant {
namespace {

using ::testing::HasSubstr;

TEST(QuantConfig, EveryWishMakesItsConfig) {
  auto names = in_flight_names();
  EXPECT_THAT(names, ::testing::IsSupersetOf({"w8a8_dynamic", "fp8"}));
  names.push_back("auto");
  for (const auto& name : names) {
    auto config = make_quant_config({}, name);
    ASSERT_TRUE(config.ok()) << config.status().message();
    const auto chosen = (*config)->scheme_for(LayerKind::kLinear, "q_proj");
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(chosen->why, name == "auto" ? "as stored" : "--quantization " + name);
  }
}

TEST(QuantConfig, AnUnknownWishListsTheKnownOnes) {
  const auto config = make_quant_config({}, "awq");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(config.status().message(), HasSubstr("--quantization awq"));
  for (const auto& name : in_flight_names()) EXPECT_THAT(config.status().message(), HasSubstr(name));
}

TEST(QuantConfig, ACheckpointThatIsQuantisedInAnUnknownWayIsRefusedByName) {
  const auto model = io::ConfigMap::parse_json(R"({"quantization_config": {"quant_method": "bitsandbytes"}})", "config.json");
  const auto config = make_quant_config(*model, "auto");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), Code::kUnsupported);
  EXPECT_THAT(
      config.status().message(),
      HasSubstr(
          "config.json: quantization_config: checkpoints quantised by bitsandbytes are not read; those by compressed-tensors"));
}

TEST(QuantConfig, WhatTheFileHoldsOfALayerDecides) {
  const auto holds = [](const std::string& name) {
    return name == "a.qweight" || name == "b.weight" || name == "mlp.gate.qweight" || name == "c.weight" || name == "d.qweight";
  };
  for (const char* described : {R"({"quant_method": "awq", "bits": 4, "group_size": 32, "modules_to_not_convert": ["d"]})",
                                R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "dynamic": {"-:d": {}}})"}) {
    const auto model = *io::ConfigMap::parse_json(fmt::format(R"({{"quantization_config": {}}})", described), "config.json");
    const auto config = make_quant_config(model, "auto", {}, holds);
    ASSERT_TRUE(config.ok()) << config.status().message();
    const auto why = [&](LayerKind kind, const char* layer) { return (*config)->scheme_for(kind, layer)->why; };
    const auto packed = (*config)->scheme_for(LayerKind::kLinear, "a")->scheme;
    EXPECT_NE(packed, float_scheme());
    EXPECT_EQ(why(LayerKind::kLinear, "b"), "float in the file");
    EXPECT_EQ((*config)->scheme_for(LayerKind::kLinear, "b")->scheme, float_scheme());
    for (const auto& [kind, layer] : {std::pair{LayerKind::kRouter, "mlp.gate"}, {LayerKind::kLinear, "d"}}) {
      EXPECT_EQ(why(kind, layer), "quantised in the file") << layer;
      EXPECT_EQ((*config)->scheme_for(kind, layer)->scheme, packed) << "computed as one with others";
    }
    EXPECT_EQ(why(LayerKind::kEmbedding, "c"), "as stored");
    EXPECT_EQ((*config)->scheme_for(LayerKind::kLinear, "nowhere")->scheme, packed) << "loading says that it is missing";
  }
}

TEST(QuantConfig, EachLayerGetsAMethodOfItsOwn) {
  const auto config = *make_quant_config({}, "auto");
  const LinearShape shape{.in = 1, .out = {1}, .shard_names = {"q_proj"}};
  const auto q = config->get_quant_method(LayerKind::kLinear, shape), k = config->get_quant_method(LayerKind::kLinear, shape);
  ASSERT_TRUE(q.ok() && k.ok());
  EXPECT_NE(q->get(), k->get());
}

TEST(QuantConfig, APlatformsSchemesStandInForTheEnginesOwn) {
  platform::SchemeOverrides overrides;
  std::vector<SchemePtr> usual;
  const auto own = float_scheme();
  const auto instead = [&](SchemePtr given) {
    usual.push_back(std::move(given));
    return dynamic_scheme(rounded_floats(8));
  };
  overrides.add<Scheme>("W8A16", "linear", instead);
  const auto config = *make_quant_config({}, "w8a16", overrides);
  const auto q = *config->scheme_for(LayerKind::kLinear, "q_proj"), k = *config->scheme_for(LayerKind::kLinear, "k_proj");
  EXPECT_EQ(q.scheme->name(), "W8A8_DYNAMIC");
  EXPECT_EQ(q.scheme, k.scheme) << "layers may be computed as one";
  EXPECT_EQ(q.why, "--quantization w8a16; W8A16 by the platform");
  ASSERT_EQ(usual.size(), 1u);
  EXPECT_EQ(usual.front()->name(), "W8A16");
  EXPECT_EQ(config->scheme_for(LayerKind::kEmbedding, "embed_tokens")->scheme, float_scheme());

  overrides.add<Scheme>("FLOAT", "lm_head", instead);
  const auto with_head = *make_quant_config({}, "auto", overrides);
  EXPECT_EQ(with_head->scheme_for(LayerKind::kLmHead, "lm_head")->scheme->name(), "W8A8_DYNAMIC");
  EXPECT_EQ(with_head->scheme_for(LayerKind::kLinear, "q_proj")->scheme, own);

  overrides.add<Scheme>("W8A16", "convolution", instead);
  EXPECT_THAT(make_quant_config({}, "auto", overrides).status().message(),
              HasSubstr("W8A16 for layers of kind 'convolution'; there are linear, embedding, lm_head"));
}

TEST(QuantConfig, APlatformsSchemeMayBeWishedFor) {
  platform::SchemeOverrides overrides;
  overrides.add<Scheme>("mine", "linear", [](const SchemePtr&) { return dynamic_scheme(rounded_floats(8)); });
  const auto config = *make_quant_config({}, "mine", overrides);
  EXPECT_EQ(config->scheme_for(LayerKind::kLinear, "q_proj")->scheme->name(), "W8A8_DYNAMIC");
  EXPECT_EQ(config->scheme_for(LayerKind::kLinear, "q_proj")->why, "--quantization mine");
  EXPECT_EQ(config->scheme_for(LayerKind::kLmHead, "lm_head")->scheme, float_scheme());
  EXPECT_FALSE(make_quant_config({}, "mine").ok());
}

}  // namespace
}  // namespace choral::quant
