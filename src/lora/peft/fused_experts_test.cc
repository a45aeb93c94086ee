#include "lora/peft/fused_experts.h"

#include <cstring>

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

// gate_up_proj is the first of a module's two parameters, so its tensors, of this rank, lie in those of the second.
AdapterBuilder fused(int64_t rank = kRank) {
  const std::string name = "base_model.model." + kModule;
  AdapterBuilder builder;
  return builder.add(name + ".base_layer.lora_A.weight", {kExperts * rank, kHidden})
      .add(name + ".base_layer.lora_B.weight", {2 * kIntermediate, rank * kExperts})
      .add(name + ".lora_A.weight", {kExperts * kRank, kIntermediate})
      .add(name + ".lora_B.weight", {kHidden, kRank * kExperts});
}
std::string config(std::string_view parameters) {
  return fmt::format(R"({{"r":2,"lora_alpha":4,"target_parameters":{}}})", parameters);
}
const std::string kBoth = config(R"(["mlp.experts.gate_up_proj","mlp.experts.down_proj"])");

// A file's tensors lie where they lie.
float element(const TensorView& view, int64_t i) {
  float value;
  std::memcpy(&value, view.data + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

TEST(FusedExperts, EachExpertHasItsRowsOfAAndItsColumnsOfB) {
  const auto model = accepted(fused(), kBoth, {}, targets());
  const auto* up = model.get_lora(kModule + ".2.up_proj");
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(up->rank, kRank);
  EXPECT_EQ(up->scaling, 2.0F);
  // A's row 1 of expert 2 is row 2·2 + 1 of all; B's row 0 of up is row 6 of both, rank 1 of expert 2 its column 1·3 + 2.
  EXPECT_FLOAT_EQ(element(up->lora_a.view, 1 * kHidden), 0.01F * (1 + 5 * kHidden));
  EXPECT_FLOAT_EQ(element(up->lora_b.view, 1), 0.01F * (1 + kIntermediate * kRank * kExperts + 5));
  const auto* down = model.get_lora(kModule + ".0.down_proj");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->lora_a.view.shape, (Shape{kRank, kIntermediate}));
  EXPECT_EQ(down->lora_b.view.shape, (Shape{kHidden, kRank}));
  EXPECT_EQ(model.loras().size(), 3u * kExperts);
}

// PEFT nests them as the module defines them, and saves a set's names in any order, bare where it found them itself.
TEST(FusedExperts, TheOrderOfTheConfigSaysNothing) {
  for (const char* parameters : {R"(["mlp.experts.down_proj","mlp.experts.gate_up_proj"])", R"(["down_proj","gate_up_proj"])",
                                 R"(["gate_up_proj","experts.down_proj"])"}) {
    const auto model = accepted(fused(), config(parameters), {}, targets());
    EXPECT_EQ(model.get_lora(kModule + ".0.down_proj")->lora_a.view.shape, (Shape{kRank, kIntermediate})) << parameters;
    EXPECT_EQ(model.loras().size(), 3u * kExperts);
  }
}

// What PEFT makes of target_modules that name gate_proj and up_proj: both ranks in one pair.
TEST(FusedExperts, PatternsKnowTheParameter) {
  const auto wide = fused(2 * kRank);
  const auto with = [](std::string_view rank, std::string_view alpha) {
    return fmt::format(
        R"({{"r":2,"lora_alpha":4,"target_parameters":["gate_up_proj","down_proj"],"rank_pattern":{},"alpha_pattern":{}}})", rank,
        alpha);
  };
  const auto model = accepted(wide, with(R"({".*\\.gate_up_proj":4})", R"({".*\\.gate_up_proj":12})"), {}, targets());
  EXPECT_EQ(model.get_lora(kModule + ".2.up_proj")->rank, 2 * kRank);
  EXPECT_EQ(model.get_lora(kModule + ".2.up_proj")->scaling, 3.0F);
  EXPECT_EQ(model.get_lora(kModule + ".2.down_proj")->rank, kRank);
  EXPECT_EQ(model.get_lora(kModule + ".2.down_proj")->scaling, 2.0F);
  EXPECT_EQ(
      accepted(wide, with(R"({"experts.gate_up_proj":4})", "{}"), {}, targets()).get_lora(kModule + ".0.gate_proj")->scaling,
      1.0F);
  EXPECT_THAT(refusal(wide, with("{}", "{}"), {}, targets()), HasSubstr("has rank 4 in the file and 2 by r"));
}

// Mixtral's checkpoints and transformers 4 call its parts otherwise than transformers 5; a file speaks as it was made.
TEST(FusedExperts, MixtralHasTwoSpellings) {
  const std::string block = "model.layers.1.block_sparse_moe.";
  auto mixtral = testing::small_targets();
  mixtral.push_back(testing::linear(block + "gate", {{block + "gate", kExperts}}, kHidden));
  for (int64_t e = 0; e < kExperts; ++e) {
    const auto expert = fmt::format("{}experts.{}.", block, e);
    mixtral.push_back(
        testing::linear(expert + "gate_up_proj", {{expert + "w1", kIntermediate}, {expert + "w3", kIntermediate}}, kHidden));
    mixtral.push_back(testing::linear(expert + "w2", {{expert + "w2", kHidden}}, kIntermediate));
  }
  const auto newer = accepted(fused().pair("model.layers.1.mlp.gate", 2, kHidden, kExperts),
                              config(R"(["gate_up_proj","down_proj","mlp.gate.weight"])"), {}, mixtral);
  EXPECT_EQ(newer.loras().size(), 3u * kExperts + 1);
  ASSERT_NE(newer.get_lora(block + "experts.2.w3"), nullptr);
  EXPECT_EQ(newer.get_lora(block + "experts.2.w3")->lora_b.view.shape, (Shape{kIntermediate, kRank}));
  EXPECT_NE(newer.get_lora(block + "gate"), nullptr);

  AdapterBuilder older;
  for (int64_t e = 0; e < kExperts; ++e) older.pair(fmt::format("{}experts.{}.w2", block, e), 2, kIntermediate, kHidden);
  EXPECT_EQ(accepted(older, config_json("", R"(["w2"])"), {}, mixtral).loras().size(), static_cast<size_t>(kExperts));
  EXPECT_THAT(refusal(older, config_json("", R"(["w2","w1"])"), {}, mixtral), HasSubstr(block + "experts.0.w1"));
}

// What a router with a selection bias is saved with.
TEST(FusedExperts, ARoutersSelectionBiasIsTheBases) {
  static const std::vector<float> kBias{0.5F, -1.25F, 3.0F};
  const std::string router = "model.layers.1.mlp.gate", bias = "base_model.model." + router + ".e_score_correction_bias";
  auto with_router = testing::small_targets();
  with_router.push_back(testing::linear(router, {{router, kExperts}}, kHidden));
  const std::string config = R"({"r":2,"lora_alpha":4,"target_modules":["q_proj"],"modules_to_save":["gate"]})";
  AdapterBuilder builder;
  for (int64_t i = 0; i < testing::kLayers; ++i) {
    builder.pair(fmt::format("model.layers.{}.self_attn.q_proj", i), 2, kHidden, kHidden);
  }
  builder.add("base_model.model." + router + ".weight", {kExperts, kHidden}).add(bias, {kExperts});
  EXPECT_THAT(refusal(builder, config, {}, with_router), HasSubstr("chooses without such a bias"));
  with_router.back().selection_bias = [] { return std::span<const float>(kBias); };
  EXPECT_THAT(refusal(builder, config, {}, with_router), HasSubstr("differs from the base's"));
  builder.at(router + ".e_score_correction_bias").values = kBias;
  EXPECT_EQ(accepted(builder, config, {}, with_router).loras().size(), static_cast<size_t>(testing::kLayers));
  builder.at(router + ".e_score_correction_bias").shape = {kExperts - 1};
  builder.at(router + ".e_score_correction_bias").values.pop_back();
  EXPECT_THAT(refusal(builder, config, {}, with_router), HasSubstr("(experts)"));
}

TEST(FusedExperts, AModulesWeightIsTheModule) {
  const std::string router = "model.layers.1.mlp.gate", other = "model.layers.0.mlp.gate";
  auto with_routers = targets();
  with_routers.push_back(testing::linear(router, {{router, kExperts}}, kHidden));
  with_routers.push_back(testing::linear(other, {{other, kExperts}}, kHidden));
  auto builder = fused().pair(router, 3, kHidden, kExperts);
  const std::string both = R"("gate_up_proj","down_proj")", patterns = R"("rank_pattern":{"gate.weight":3})";
  const auto config = [&](std::string_view gate) {
    return fmt::format(R"({{"r":2,"lora_alpha":4,"target_parameters":[{},"{}"],{}}})", both, gate, patterns);
  };
  const auto model = accepted(builder, config("1.mlp.gate.weight"), {}, with_routers);
  ASSERT_NE(model.get_lora(router), nullptr);
  EXPECT_EQ(model.get_lora(router)->rank, 3);
  EXPECT_EQ(model.get_lora(other), nullptr);
  EXPECT_THAT(refusal(builder, config("gate.weight"), {}, with_routers), HasSubstr(other));
  EXPECT_THAT(refusal(builder, config("route.weight"), {}, with_routers), HasSubstr("'route.weight'"));
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

TEST(FusedExperts, ParametersAreNamedByTheirEnds) {
  const std::vector<std::string> parameters{"mlp.experts.down_proj"};
  EXPECT_TRUE(names_parameter_of(parameters, "model.layers.1.mlp.experts.12.down_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, "model.layers.1.mlp.experts.12.up_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, "model.layers.1.xmlp.experts.12.down_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, "model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, "down_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, ".down_proj"));
  EXPECT_FALSE(names_parameter_of(parameters, ""));
  EXPECT_EQ(parameter_of("model.layers.1.mlp.gate"), "model.layers.1.mlp.gate.weight");
  for (const char* name : {"mlp.gate.weight", "experts.down_proj", "gate_up_proj", "1.mlp.experts.gate_up_proj"}) {
    EXPECT_TRUE(is_parameter(name)) << name;
  }
  for (const char* name : {"", ".weight", "weight", "mlp.down_proj", "mlp.experts.w2", "mlp.experts.down_proj_bias", "up_proj"}) {
    EXPECT_FALSE(is_parameter(name)) << name;
  }
  EXPECT_TRUE(is_of_expert("model.layers.1.mlp.experts.12.w1"));
  EXPECT_FALSE(is_of_expert("model.layers.1.mlp.shared_experts.up_proj"));
  EXPECT_TRUE(is_fused_experts("model.layers.0.mlp.experts.base_layer.base_layer"));
  EXPECT_FALSE(is_fused_experts("model.layers.0.mlp.shared_experts"));
  EXPECT_FALSE(is_fused_experts("model.layers.0.mlp.experts.3.base_layer"));
}

}  // namespace
}  // namespace choral::lora
