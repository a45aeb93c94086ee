#include "lora/peft/peft_helper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "io/test_files.h"
#include "lora/store/built_adapter_test.h"
#include "support/temp_dir.h"

namespace choral::lora {
namespace {

using ::testing::AllOf;
using testing::config_json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Result<PEFTHelper> read(std::string_view json, const PEFTLimits& limits = {}) {
  CHORAL_TRY(const auto config, io::ConfigMap::parse_json(json, "adapter_config.json"));
  return PEFTHelper::from_config(config, limits);
}
PEFTHelper good(std::string_view json) {
  auto peft = read(json);
  CHORAL_CHECK(peft.ok(), peft.status().message());
  return std::move(*peft);
}
// What is wrong with a config, by reading it or by asking whether it is legal.
std::string refusal(std::string_view json, const LoRAConfig& config = {}) {
  const auto peft = read(json);
  return peft.ok() ? peft->validate_legal(config).message() : peft.status().message();
}

constexpr char kQuery[] = "model.layers.12.self_attn.q_proj";

TEST(PEFTHelper, ReadsEveryField) {
  const PEFTHelper peft = good(R"({"peft_type":"LORA","task_type":"CAUSAL_LM","base_model_name_or_path":"org/base",
      "r":16,"lora_alpha":32.5,"target_modules":["q_proj","v_proj"],"bias":"all","modules_to_save":["lm_head"],
      "use_rslora":true,"use_dora":true,"lora_bias":false,"rank_pattern":{"b":2,"a":1},"alpha_pattern":{"a":0.5},
      "fan_in_fan_out":true,"layers_to_transform":[1,2],"layers_pattern":["layers"],"exclude_modules":["k_proj"],
      "trainable_token_indices":{"embed_tokens":[3,1]},"init_lora_weights":"gaussian","alora_invocation_tokens":[5,6],
      "peft_version":"0.18.1"})");
  EXPECT_TRUE(peft.validate_legal({}).ok()) << peft.validate_legal({}).message();
  EXPECT_EQ(peft.r, 16);
  EXPECT_EQ(peft.lora_alpha, 32.5);
  EXPECT_EQ(peft.bias, PEFTBias::kAll);
  EXPECT_TRUE(peft.use_rslora && peft.use_dora && peft.fan_in_fan_out);
  EXPECT_EQ(peft.rank_pattern[0].first, "b");  // the file's order, not the alphabet's
  EXPECT_EQ(peft.alora_invocation_tokens, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(peft.trainable_token_indices[0].second, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(*peft.layers_to_transform, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(peft.base_model_name_or_path, "org/base");
  EXPECT_EQ(peft.init_lora_weights, "gaussian");
}

TEST(PEFTHelper, ScaleIsAlphaOverRankOrItsRoot) {
  EXPECT_EQ(*good(config_json()).scaling_for("x"), 2.0);
  EXPECT_DOUBLE_EQ(*good(config_json(R"(,"use_rslora":true)")).scaling_for("x"), 4.0 / std::sqrt(2.0));
  const PEFTHelper both = good(config_json(R"(,"use_rslora":true,"rank_pattern":{"q_proj":9},"alpha_pattern":{"q_proj":6})"));
  EXPECT_DOUBLE_EQ(*both.scaling_for(kQuery), 2.0);
  EXPECT_DOUBLE_EQ(*both.scaling_for("model.layers.0.self_attn.v_proj"), 4.0 / std::sqrt(2.0));
  EXPECT_EQ(both.largest_rank(), 9);
}

TEST(PEFTHelper, FirstPatternInTheFileWins) {
  EXPECT_EQ(*good(config_json(R"(,"rank_pattern":{"q_proj":3,"layers.12.self_attn.q_proj":5})")).rank_for(kQuery), 3);
  EXPECT_EQ(*good(config_json(R"(,"rank_pattern":{"layers.12.self_attn.q_proj":5,"q_proj":3})")).rank_for(kQuery), 5);
  EXPECT_EQ(*good(config_json(R"(,"rank_pattern":{"proj":3,"attn.q_proj":4})")).rank_for(kQuery), 2);
  // rank_pattern and alpha_pattern are matched apart.
  const PEFTHelper peft = good(config_json(R"(,"rank_pattern":{"q_proj":8},"alpha_pattern":{"layers\\.1[0-9]\\..*":1})"));
  EXPECT_EQ(*peft.scaling_for(kQuery), 0.125);
}

// The trained adapter "poem"; the ranks are those of its tensors.
TEST(PEFTHelper, RealPatterns) {
  const auto peft = PEFTHelper::from_local_dir(CHORAL_TEST_DATA "/lora/poem");
  ASSERT_TRUE(peft.ok()) << peft.status().message();
  EXPECT_TRUE(peft->validate_legal({}).ok());
  const auto expect = [&](const std::string& module, int64_t rank, double alpha) {
    EXPECT_EQ(*peft->rank_for(module), rank) << module;
    EXPECT_EQ(*peft->alpha_for(module), alpha) << module;
  };
  expect("model.layers.0.self_attn.q_proj", 2, 16);
  expect("model.layers.1.self_attn.q_proj", 8, 16);
  expect("model.layers.10.mlp.gate_proj", 16, 8);
  expect("model.layers.9.mlp.gate_proj", 8, 16);
  expect("model.layers.20.mlp.gate_proj", 8, 16);
  expect("model.layers.29.mlp.down_proj", 24, 48);
  expect("model.layers.28.mlp.down_proj", 8, 16);
  expect("model.layers.3.self_attn.v_proj", 4, 12);
}

bool targets(std::string_view json, std::string_view module, TargetKind kind = TargetKind::kLinear) {
  return *good(json).targets(module, kind);
}

TEST(PEFTHelper, TargetsAsPeftMatchesThem) {
  EXPECT_TRUE(targets(config_json("", R"(["q_proj"])"), kQuery));
  EXPECT_FALSE(targets(config_json("", R"(["proj"])"), kQuery));
  EXPECT_TRUE(targets(config_json("", R"(["self_attn.q_proj"])"), kQuery));
  EXPECT_TRUE(targets(config_json("", R"("all-linear")"), kQuery));
  EXPECT_FALSE(targets(config_json("", R"("all-linear")"), "lm_head", TargetKind::kHead));
  EXPECT_FALSE(targets(config_json("", R"("all-linear")"), "model.embed_tokens", TargetKind::kEmbedding));
  EXPECT_TRUE(targets(config_json("", R"(".*attn.*")"), kQuery));
  EXPECT_FALSE(targets(config_json("", R"("q_proj")"), kQuery));
  const auto layers = [](std::string_view more, std::string_view module) {
    return targets(config_json(more, R"(["q_proj","model.layers.3.self_attn.k_proj"])"), module);
  };
  EXPECT_TRUE(layers(R"(,"layers_to_transform":12)", kQuery));
  EXPECT_TRUE(layers(R"(,"layers_to_transform":[1,12])", kQuery));
  EXPECT_TRUE(layers(R"(,"layers_to_transform":[])", kQuery));
  EXPECT_FALSE(layers(R"(,"layers_to_transform":[1,2])", kQuery));
  EXPECT_TRUE(layers(R"(,"layers_to_transform":[1,2])", "model.layers.3.self_attn.k_proj"));  // a full name needs no layer
  EXPECT_TRUE(layers(R"(,"layers_to_transform":[12],"layers_pattern":"layers")", kQuery));
  EXPECT_FALSE(layers(R"(,"layers_to_transform":[12],"layers_pattern":["h","blocks"])", kQuery));
  EXPECT_FALSE(layers(R"(,"layers_to_transform":[12])", "layers.12.q_proj"));  // PEFT wants a name before the list's
  EXPECT_TRUE(layers(R"(,"layers_to_transform":[3])", "model.layers.12.experts.3.q_proj"));  // PEFT takes the last number
  EXPECT_FALSE(targets(config_json(R"(,"exclude_modules":["layers.12.self_attn.q_proj"])"), kQuery));
  EXPECT_FALSE(targets(config_json(R"(,"exclude_modules":".*\\.12\\..*")"), kQuery));
  EXPECT_FALSE(targets(config_json(R"(,"modules_to_save":["self_attn"])"), kQuery));
  EXPECT_TRUE(targets(config_json(R"(,"modules_to_save":["attn"])"), kQuery));
}

TEST(PEFTHelper, RefusesKindsByName) {
  const auto refused = [](std::string_view more) { return refusal(config_json(more)); };
  for (const char* init : {"pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga"}) {
    EXPECT_THAT(refused(fmt::format(R"(,"init_lora_weights":"{}")", init)),
                AllOf(HasSubstr("init_lora_weights"), HasSubstr(init), HasSubstr("path_initial_model_for_weight_conversion")));
  }
  for (const char* init : {R"("gaussian")", R"("eva")", R"("orthogonal")", "true", "false", "null"}) {
    EXPECT_EQ(refused(fmt::format(R"(,"init_lora_weights":{})", init)), "") << init;
  }
  EXPECT_THAT(refused(R"(,"init_lora_weights":"magic")"), HasSubstr("'magic' is unknown"));
  for (const char* key : {"use_qalora", "use_bdlora", "enable_lora", "use_something_new"}) {
    EXPECT_THAT(refused(fmt::format(R"(,"{}":true)", key)), HasSubstr(key));
    EXPECT_EQ(refused(fmt::format(R"(,"{}":false)", key)), "") << key;
    EXPECT_EQ(refused(fmt::format(R"(,"{}":null)", key)), "") << key;
  }
  for (const char* key : {"layer_replication", "megatron_config", "arrow_config", "kasa_config", "new_config"}) {
    EXPECT_THAT(refused(fmt::format(R"(,"{}":{{"x":1}})", key)), HasSubstr(key));
    EXPECT_EQ(refused(fmt::format(R"(,"{}":{{}})", key)), "") << key;
  }
  EXPECT_THAT(refused(R"(,"layer_replication":[[0,4],[2,5]])"), HasSubstr("layer_replication"));
  EXPECT_EQ(refused(R"(,"target_parameters":["mlp.experts.gate_up_proj"])"), "");
  for (const char* wrong : {R"(["mlp.down_proj"])", R"(["mlp.experts"])", R"(["mlp.experts.up"])",
                            R"(["mlp.experts.down_proj"],"use_dora":true)", R"(["mlp.gate.weight"],"lora_bias":true)"}) {
    EXPECT_THAT(refused(fmt::format(R"(,"target_parameters":{})", wrong)), HasSubstr("target_parameters")) << wrong;
  }
  for (const char* harmless : {R"("eva_config":{"rho":2.0})", R"("corda_config":{"x":1})", R"("loftq_config":{"bits":4})",
                               R"("qalora_group_size":16)", R"("megatron_core":"megatron.core")", R"("lora_dropout":0.05)",
                               R"("inference_mode":true)", R"("auto_mapping":{"a":"b"})", R"("unsloth_version":"2025")"}) {
    EXPECT_EQ(refused(fmt::format(",{}", harmless)), "") << harmless;
  }
  EXPECT_THAT(good(config_json(R"(,"lora_dropout":0.05)")).notes, Contains(HasSubstr("lora_dropout")));
  EXPECT_THAT(refusal(R"({"peft_type":"IA3","r":1,"lora_alpha":1,"target_modules":["a"]})"), HasSubstr("'IA3'"));
  EXPECT_THAT(refused(R"(,"context_length":32768,"vllm_max_position_embeddings":4096)"), HasSubstr("by 8"));
  EXPECT_EQ(refused(R"(,"context_length":4096,"vllm_max_position_embeddings":4096)"), "");
}

TEST(PEFTHelper, GathersAllProblems) {
  LoRAConfig config;
  config.max_lora_rank = 8;
  config.bias_enabled = false;
  EXPECT_THAT(refusal(R"({"r":-1,"bias":"some","use_qalora":true,"rank_pattern":{"q":64,"(":3},"lora_bias":true})", config),
              AllOf(HasSubstr("8 problems"), HasSubstr("r is -1"), HasSubstr("lora_alpha is missing"),
                    HasSubstr("target_modules is missing"), HasSubstr("bias is 'some'"), HasSubstr("use_qalora"),
                    HasSubstr("no regular expression"), HasSubstr("rank 64 is over the limit of 8"), HasSubstr("lora_bias")));
  EXPECT_THAT(refusal(R"({"target_modules":["a"],"lora_alpha":1})"), HasSubstr("r is missing"));
  EXPECT_THAT(refusal(config_json(R"(,"rank_pattern":{"a":0})")), HasSubstr("'a' is 0"));
  EXPECT_THAT(refusal(config_json(R"(,"layers_to_transform":[1])", R"(".*")")), HasSubstr("layers_to_transform cannot be used"));
  EXPECT_THAT(refusal(config_json(R"(,"layers_pattern":"h")")), HasSubstr("layers_pattern without"));
  EXPECT_THAT(refusal(config_json(R"(,"lora_bias":true,"use_dora":true)")), HasSubstr("lora_bias cannot be used with use_dora"));
  EXPECT_THAT(refusal(config_json("", R"("(q_proj")")), HasSubstr("target_modules"));
}

TEST(PEFTHelper, WrongTypesNameTheirKeys) {
  for (const auto& [json, key] : std::vector<std::pair<std::string, std::string>>{
           {R"({"r":"8"})", "adapter_config.json: r is the string"},
           {R"({"r":8,"lora_alpha":[1]})", "lora_alpha"},
           {R"({"target_modules":[1]})", "target_modules"},
           {R"({"target_modules":{"q":1}})", "target_modules"},
           {R"({"use_dora":"yes"})", "use_dora"},
           {R"({"r":1,"lora_alpha":1,"target_modules":["a"],"rank_pattern":{"q":"8"}})", "rank_pattern.q"},
           {R"({"r":1,"lora_alpha":1,"target_modules":["a"],"rank_pattern":{"q":8.5}})", "rank_pattern.q"},
           {R"({"alora_invocation_tokens":[-1]})", "alora_invocation_tokens"},
           {R"({"trainable_token_indices":{"e":"all"}})", "trainable_token_indices.e"},
           {R"({"trainable_token_indices":[4294967296]})", "trainable_token_indices"}}) {
    const auto peft = read(json);
    EXPECT_FALSE(peft.ok()) << json;
    EXPECT_THAT(peft.status().message(), HasSubstr(key));
  }
}

TEST(PEFTHelper, LimitsAndFiles) {
  std::string patterns;
  for (int i = 0; i < 300; ++i) patterns += fmt::format(R"({}"(a+)+b{}":1)", i == 0 ? "" : ",", i);
  EXPECT_THAT(refusal(config_json(fmt::format(R"(,"rank_pattern":{{{}}})", patterns))), HasSubstr("300 regular expressions"));
  std::string names;
  for (int i = 0; i < 2000; ++i) names += fmt::format(R"({}"model.layers.{}.q_proj":1)", i == 0 ? "" : ",", i);
  EXPECT_EQ(refusal(config_json(fmt::format(R"(,"rank_pattern":{{{}}})", names))), "");
  EXPECT_THAT(read(config_json(R"(,"modules_to_save":["a","b","c"])"), {.max_names = 2}).status().message(),
              HasSubstr("2 are allowed"));

  const choral::testing::TempDir folder;
  EXPECT_EQ(PEFTHelper::from_local_dir(folder.path()).status().code(), Code::kNotFound);
  folder.write("adapter_config.json", "{");
  EXPECT_EQ(PEFTHelper::from_local_dir(folder.path()).status().code(), Code::kCorrupt);
  folder.write("adapter_config.json", "{\"a\":\"" + std::string(5 << 20, 'x') + "\"}");
  EXPECT_EQ(PEFTHelper::from_local_dir(folder.path()).status().code(), Code::kTooLarge);
}

TEST(PEFTHelper, OneFileOfAnAdapterLeadsToItsFolder) {
  const choral::testing::TempDir folder;
  const auto refused = [](const std::string& path) { return std::string(PEFTHelper::from_local_dir(path).status().message()); };
  const std::string weights = io::testing::safetensors_file("{}", "");
  EXPECT_THAT(refused(folder.write("lone/adapter_model.safetensors", weights)),
              HasSubstr("no adapter_config.json stands beside"));
  const std::string config = folder.write("whole/adapter_config.json", "{}");
  for (const auto& path : {config, folder.write("whole/adapter_model.safetensors", weights)})
    EXPECT_THAT(refused(path), HasSubstr("give its folder, " + folder / "whole"));
  EXPECT_THAT(refused(folder.write("whole/sha256-0123", "GGUF")), Not(HasSubstr("folder"))) << "a GGUF file, if a broken one";
}

TEST(PEFTHelper, ASlowPatternIsAnErrorNotAWait) {
  const PEFTHelper peft = good(config_json(R"(,"rank_pattern":{"([a-z_.]+)+[XY]":3})"));
  EXPECT_EQ(peft.rank_for("model.layers.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa").status().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace choral::lora
