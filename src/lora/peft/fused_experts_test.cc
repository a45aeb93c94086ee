#include "lora/peft/fused_experts.h"

#include "lora/peft/loading_test.h"

namespace choral::lora {
namespace {

constexpr int64_t kExperts = 3, kRank = 2, kIntermediate = 6;
const std::string kModule = "model.layers.1.mlp.experts";

std::vector<LoRATarget> targets() {
  auto out = testing::small_targets();
  for (int64_t e = 0; e < kExperts; ++e) {
    const auto expert = fmt::format("{}.{}.", kModule, e);
    out.push_back(testing::linear(expert + "gate_up_proj",
                                  {{expert + "gate_proj", kIntermediate}, {expert + "up_proj", kIntermediate}}, kHidden));
    out.push_back(testing::linear(expert + "down_proj", {{expert + "down_proj", kHidden}}, kIntermediate));
  }
  return out;
}

// gate_up_proj is the first of two parameters, so its tensors lie in those of the second.
AdapterBuilder fused() {
  const std::string name = "base_model.model." + kModule;
  AdapterBuilder builder;
  return builder.add(name + ".base_layer.lora_A.weight", {kExperts * kRank, kHidden})
      .add(name + ".base_layer.lora_B.weight", {2 * kIntermediate, kRank * kExperts})
      .add(name + ".lora_A.weight", {kExperts * kRank, kIntermediate})
      .add(name + ".lora_B.weight", {kHidden, kRank * kExperts});
}
std::string config(std::string_view parameters) {
  return fmt::format(R"({{"r":2,"lora_alpha":4,"target_parameters":{}}})", parameters);
}
const std::string kBoth = config(R"(["mlp.experts.gate_up_proj","mlp.experts.down_proj"])");

TEST(FusedExperts, EachExpertHasItsRowsOfAAndItsColumnsOfB) {
  const auto model = accepted(fused(), kBoth, {}, targets());
  const auto* up = model.get_lora(kModule + ".2.up_proj");
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(up->rank, kRank);
  EXPECT_EQ(up->scaling, 2.0F);
  // A's row 1 of expert 2 is row 2·2 + 1 of all; B's row 0 of up is row 6 of both, rank 1 of expert 2 its column 1·3 + 2.
  const auto* a = reinterpret_cast<const float*>(up->lora_a.view.data);
  EXPECT_FLOAT_EQ(a[1 * kHidden], 0.01F * (1 + 5 * kHidden));
  const auto* b = reinterpret_cast<const float*>(up->lora_b.view.data);
  EXPECT_FLOAT_EQ(b[1], 0.01F * (1 + kIntermediate * kRank * kExperts + 5));
  const auto* down = model.get_lora(kModule + ".0.down_proj");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->lora_a.view.shape, (Shape{kRank, kIntermediate}));
  EXPECT_EQ(down->lora_b.view.shape, (Shape{kHidden, kRank}));
  EXPECT_EQ(model.loras().size(), 3u * kExperts);
}

TEST(FusedExperts, TheOrderOfParametersSaysWhichIsInside) {
  const auto turned = config(R"(["mlp.experts.down_proj","mlp.experts.gate_up_proj"])");
  EXPECT_THAT(refusal(fused(), turned, {}, targets()), HasSubstr("has shape"));
}

TEST(FusedExperts, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(refusal(fused(), config(R"(["mlp.experts.down_proj"])"), {}, targets()), HasSubstr("base_layer.lora_A"));
  EXPECT_THAT(refusal(fused(), config(R"(["mlp.experts.gate_up_proj","mlp.experts.w2"])"), {}, targets()), HasSubstr("w2"));
  EXPECT_THAT(refusal(fused(), kBoth), HasSubstr("the model has no 'model.layers.1.mlp.experts.N.gate_up_proj'"));
  auto odd = fused();
  odd.at(kModule + ".lora_A.weight").shape = {4, 9};
  EXPECT_THAT(refusal(odd, kBoth, {}, targets()), HasSubstr("3 experts of one rank do not make 4"));
  auto half = fused();
  half.remove(kModule + ".base_layer.lora_A.weight").remove(kModule + ".base_layer.lora_B.weight");
  EXPECT_THAT(refusal(half, kBoth, {}, targets()), HasSubstr("experts.0.gate_up_proj"));
}

// gpt-oss has gate and up as one matrix, and adapters of a few layers are usual.
TEST(FusedExperts, ALayersNumberMayStandBeforeAParameter) {
  auto layers = testing::small_targets();
  for (const int layer : {0, 1, 11}) {
    for (int64_t e = 0; e < kExperts; ++e) {
      const auto expert = fmt::format("model.layers.{}.mlp.experts.{}.", layer, e);
      layers.push_back(testing::linear(expert + "gate_up_proj", {{expert + "gate_up_proj", 2 * kIntermediate}}, kHidden));
      layers.push_back(testing::linear(expert + "down_proj", {{expert + "down_proj", kHidden}}, kIntermediate));
    }
  }
  const auto of_layer = config(R"(["1.mlp.experts.gate_up_proj","1.mlp.experts.down_proj"])");
  const auto model = accepted(fused(), of_layer, {}, layers);
  EXPECT_EQ(model.loras().size(), 2u * kExperts);
  const auto* both = model.get_lora(kModule + ".2.gate_up_proj");
  ASSERT_NE(both, nullptr);
  EXPECT_EQ(both->lora_b.view.shape, (Shape{2 * kIntermediate, kRank}));
  EXPECT_THAT(refusal(fused(), kBoth, {}, layers), HasSubstr("model.layers.0.mlp.experts.0.gate_up_proj"));
}

// Where the base holds experts as parameters, target_modules does not reach them, whatever it names.
TEST(FusedExperts, AFileWithoutExpertsLeavesThemAlone) {
  AdapterBuilder builder;
  for (int64_t i = 0; i < testing::kLayers; ++i)
    builder.pair(fmt::format("model.layers.{}.mlp.down_proj", i), 2, kInner, kHidden);
  const std::string config = config_json("", R"(["down_proj"])");
  const auto model = accepted(builder, config, {}, targets());
  EXPECT_EQ(model.loras().size(), 2u);
  EXPECT_THAT(model.notes(), Contains(HasSubstr("experts")));
  builder.pair(kModule + ".1.down_proj", 2, kIntermediate, kHidden);
  EXPECT_THAT(refusal(builder, config, {}, targets()), HasSubstr("experts.0.down_proj"));
}

// As PEFT saves a router of newer transformers: its weight is a parameter, its tensors are a linear layer's.
TEST(FusedExperts, ARoutersWeightIsAdaptedAsItsModule) {
  auto all = targets();
  const std::string router = "model.layers.1.mlp.gate";
  all.push_back(testing::linear(router, {{router, kExperts}}, kHidden));
  const auto model = accepted(AdapterBuilder().pair(router, kRank, kHidden, kExperts), config(R"(["mlp.gate.weight"])"), {}, all);
  const auto* pair = model.get_lora(router);
  ASSERT_NE(pair, nullptr);
  EXPECT_EQ(pair->scaling, 2.0F);
  EXPECT_EQ(pair->lora_b.view.shape, (Shape{kExperts, kRank}));
  const auto three = config(R"(["mlp.gate.weight","mlp.experts.gate_up_proj","mlp.experts.down_proj"])");
  EXPECT_EQ(accepted(fused().pair(router, kRank, kHidden, kExperts), three, {}, all).loras().size(), 3u * kExperts + 1);
  EXPECT_THAT(refusal(fused(), three, {}, all), HasSubstr("'model.layers.1.mlp.gate'"));
  EXPECT_THAT(refusal(fused(), config(R"(["embed_tokens.weight","mlp.experts.gate_up_proj","mlp.experts.down_proj"])"), {}, all),
              HasSubstr("no linear layer's weight of this model"));
}

TEST(FusedExperts, ParametersAreNamedByTheirEnds) {
  const std::vector<std::string> parameters{"mlp.experts.down_proj"};
  EXPECT_TRUE(names_parameter_of(parameters, "model.layers.1.mlp.experts.12.down_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, "model.layers.1.mlp.experts.12.up_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, "model.layers.1.xmlp.experts.12.down_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, "model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, "down_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, ".down_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, ""));
  const std::vector<std::string> weights{"gate.weight"};
  EXPECT_TRUE(names_weight_of(weights, "model.layers.1.mlp.gate"));
  EXPECT_FALSE(names_weight_of(weights, "model.layers.1.mlp.xgate"));
  EXPECT_FALSE(names_weight_of(parameters, "model.layers.1.mlp.gate"));
  EXPECT_TRUE(is_of_expert("model.layers.1.mlp.experts.12.w1"));
  EXPECT_FALSE(is_of_expert("model.layers.1.mlp.shared_experts.up_proj"));
  EXPECT_TRUE(is_fused_experts("model.layers.0.mlp.experts.base_layer.base_layer"));
  EXPECT_FALSE(is_fused_experts("model.layers.0.mlp.shared_experts"));
  EXPECT_FALSE(is_fused_experts("model.layers.0.mlp.experts.3.base_layer"));
}

}  // namespace
}  // namespace choral::lora
