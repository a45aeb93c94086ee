// What GGUF files of single families say, and what wrong ones of them are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/checkpoint.h"
#include "io/gguf_family_test.h"

namespace choral::io::family_test {
namespace {

using choral::testing::TempDir;
using ::testing::HasSubstr;

GgufSpec deepseek(uint32_t experts = 8) {
  GgufSpec spec = base("deepseek2");
  for (const auto& [key, value] : std::vector<std::pair<const char*, uint32_t>>{{"attention.kv_lora_rank", 3},
                                                                                {"attention.key_length", 6},
                                                                                {"attention.value_length", 1},
                                                                                {"rope.dimension_count", 4},
                                                                                {"expert_count", experts},
                                                                                {"expert_used_count", 2},
                                                                                {"expert_feed_forward_length", 16},
                                                                                {"expert_shared_count", 2},
                                                                                {"leading_dense_block_count", 1}}) {
    spec.metadata.push_back(GgufSpec::kv_u32(std::string("deepseek2.") + key, value));
  }
  return spec;
}

TEST(GgufDeepseek, HeadsHaveTwoSpellings) {
  for (const bool renamed : {false, true}) {
    GgufSpec spec = deepseek();
    if (renamed) {
      put(spec, GgufSpec::kv_u32("deepseek2.attention.key_length", 7));
      put(spec, GgufSpec::kv_u32("deepseek2.attention.value_length", 3));
      put(spec, GgufSpec::kv_u32("deepseek2.attention.key_length_mla", 6));
      put(spec, GgufSpec::kv_u32("deepseek2.attention.value_length_mla", 1));
      put(spec, GgufSpec::kv_u32("deepseek2.attention.head_count_kv", 1));
    }
    EXPECT_EQ(field(spec, "architectures"), R"(["DeepseekV2ForCausalLM"])");
    EXPECT_EQ(field(spec, "qk_nope_head_dim"), "2");
    EXPECT_EQ(field(spec, "qk_rope_head_dim"), "4");
    EXPECT_EQ(field(spec, "v_head_dim"), "1");
    EXPECT_EQ(field(spec, "num_key_value_heads"), "2");
    EXPECT_EQ(field(spec, "q_lora_rank"), "absent");
    EXPECT_EQ(field(spec, "first_k_dense_replace"), "1");
    EXPECT_EQ(field(spec, "n_shared_experts"), "2");
    EXPECT_EQ(field(spec, "norm_topk_prob"), "false");
  }
}

TEST(GgufDeepseek, TheGatingTellsV3) {
  GgufSpec spec = deepseek();
  put(spec, GgufSpec::kv_u32("deepseek2.expert_gating_func", 2));
  EXPECT_EQ(field(spec, "architectures"), R"(["DeepseekV3ForCausalLM"])");
  put(spec, GgufSpec::kv_u32("deepseek2.expert_gating_func", 3));
  EXPECT_THAT(field(spec, "architectures"), HasSubstr("deepseek2.expert_gating_func is 3"));
  spec = base("qwen3moe");
  put(spec, GgufSpec::kv_u32("qwen3moe.expert_count", 8));
  put(spec, GgufSpec::kv_u32("qwen3moe.expert_gating_func", 2));
  EXPECT_THAT(field(spec, "architectures"),
              HasSubstr("qwen3moe.expert_gating_func is 2; experts of qwen3moe are scored by a softmax"));
}

TEST(GgufDeepseek, GroupsOfOldFilesAreTheModels) {
  EXPECT_EQ(field(deepseek(), "n_group"), "1");
  EXPECT_EQ(field(deepseek(), "topk_method"), R"("greedy")");
  EXPECT_EQ(field(deepseek(160), "n_group"), "8");
  EXPECT_EQ(field(deepseek(160), "topk_group"), "3");
  EXPECT_EQ(field(deepseek(160), "topk_method"), R"("group_limited_greedy")");
  GgufSpec spec = deepseek(256);
  put(spec, GgufSpec::kv_u32("deepseek2.expert_gating_func", 2));
  EXPECT_EQ(field(spec, "topk_group"), "4");
  put(spec, GgufSpec::kv_u32("deepseek2.expert_group_count", 1));
  EXPECT_EQ(field(spec, "n_group"), "1");
  EXPECT_EQ(field(spec, "topk_group"), "1");
}

TEST(GgufDeepseek, YarnsMultiplierIsATenthOfMscale) {
  GgufSpec spec = deepseek();
  put(spec, GgufSpec::kv_string("deepseek2.rope.scaling.type", "yarn"));
  put(spec, GgufSpec::kv_f32("deepseek2.rope.scaling.factor", 40));
  put(spec, GgufSpec::kv_f32("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707F));
  EXPECT_EQ(field(spec, "rope_scaling"), R"({"rope_type": "yarn", "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707})");
  put(spec, GgufSpec::kv_f32("deepseek2.rope.scaling.yarn_log_multiplier", -1));
  EXPECT_THAT(field(spec, "rope_scaling"), HasSubstr("yarn_log_multiplier is -1"));
}

TEST(GgufDeepseek, LayersThatPredictFurtherTokensAreNotTheModels) {
  GgufSpec spec = deepseek();
  put(spec, GgufSpec::kv_u32("deepseek2.nextn_predict_layers", 1));
  EXPECT_EQ(field(spec, "num_hidden_layers"), "1");
  put(spec, GgufSpec::kv_u32("deepseek2.nextn_predict_layers", 2));
  EXPECT_THAT(field(spec, "num_hidden_layers"), HasSubstr("nextn_predict_layers is 2"));
}

TEST(GgufDeepseek, WrongValuesAreNamed) {
  for (const auto& [entry, words] : std::vector<std::pair<std::string, std::string>>{
           {GgufSpec::kv_u32("deepseek2.rope.dimension_count", 6), "deepseek2.attention.key_length is 6, of which 6 turn"},
           {GgufSpec::kv_u32("deepseek2.rope.dimension_count", 0), "rope.dimension_count is 0"},
           {GgufSpec::kv_u32("deepseek2.attention.key_length_mla", 6), "attention.value_length_mla is missing"},
           {GgufSpec::kv_u32("deepseek2.attention.kv_lora_rank", 0), "kv_lora_rank is 0"},
           {GgufSpec::kv_u32("deepseek2.attention.q_lora_rank", 0xFFFFFFFF), "q_lora_rank is 4294967295"},
           {GgufSpec::kv_u32("deepseek2.expert_shared_count", 0x80000000), "expert_shared_count is 2147483648"},
           {GgufSpec::kv_u32("deepseek2.expert_group_count", 0), "expert_group_count is 0"},
           {GgufSpec::kv_f32("deepseek2.expert_weights_scale", NAN), "expert_weights_scale is not a finite number"},
           {GgufSpec::kv_u32("deepseek2.expert_weights_norm", 1), "expert_weights_norm is the integer"},
           {GgufSpec::kv_u32("deepseek2.expert_count", 0), "of deepseek2 only files with experts are read"}}) {
    GgufSpec spec = deepseek();
    put(spec, entry);
    EXPECT_THAT(field(spec, "hidden_size"), HasSubstr(words));
  }
}

TEST(GgufPhi3, LongropeAndTheWindowOfOldFiles) {
  GgufSpec spec = base("phi3");
  EXPECT_EQ(field(spec, "sliding_window"), "absent");
  put(spec, GgufSpec::kv_u32("phi3.context_length", 4096));
  EXPECT_EQ(field(spec, "sliding_window"), "2047");
  put(spec, GgufSpec::kv_u32("phi3.attention.sliding_window", 0));
  EXPECT_EQ(field(spec, "sliding_window"), "absent") << "Phi-4 says that it has none";
  spec.tensors.push_back({"rope_factors_long.weight", {2}, 0, floats(2)});
  EXPECT_THAT(field(spec, "rope_scaling"), HasSubstr("rope_factors_short.weight is missing"));
  spec.tensors.push_back({"rope_factors_short.weight", {2}, 0, floats(2)});
  EXPECT_THAT(field(spec, "rope_scaling"), HasSubstr("rope.scaling.original_context_length is missing"));
  put(spec, GgufSpec::kv_u32("phi3.rope.scaling.original_context_length", 64));
  put(spec, GgufSpec::kv_f32("phi3.rope.scaling.attn_factor", 1.25F));
  EXPECT_EQ(field(spec, "rope_scaling"), R"({"rope_type": "longrope", "long_factor": [1.0, 2.0], "short_factor": [1.0, 2.0], )"
                                         R"("original_max_position_embeddings": 64, "attention_factor": 1.25})");
  put(spec, GgufSpec::kv_string("phi3.rope.scaling.type", "yarn"));
  EXPECT_THAT(field(spec, "rope_scaling"), HasSubstr("rope_factors_long.weight together with phi3.rope.scaling.type 'yarn'"));
  spec.tensors[1] = {"rope_factors_long.weight", {17}, 0, floats(17)};
  put(spec, GgufSpec::kv_string("phi3.rope.scaling.type", "longrope"));
  EXPECT_THAT(field(spec, "rope_scaling"), HasSubstr("rope_factors_long.weight is float32 of shape [17]"));
}

TEST(GgufOlmoe, TheChosenKeepTheirShares) {
  GgufSpec spec = base("olmoe");
  put(spec, GgufSpec::kv_u32("olmoe.expert_count", 8));
  put(spec, GgufSpec::kv_u32("olmoe.expert_used_count", 3));
  EXPECT_EQ(field(spec, "architectures"), R"(["OlmoeForCausalLM"])");
  EXPECT_EQ(field(spec, "norm_topk_prob"), "false");
  EXPECT_EQ(field(spec, "clip_qkv"), "absent");
  put(spec, GgufSpec::kv_f32("olmoe.attention.clamp_kqv", 8));
  EXPECT_EQ(field(spec, "clip_qkv"), "8.0");
}

TEST(GgufQwen2Moe, TheSharedExpertsGateIsAMatrixOfOneRow) {
  GgufSpec spec = base("qwen2moe");
  put(spec, GgufSpec::kv_u32("qwen2moe.expert_count", 8));
  put(spec, GgufSpec::kv_u32("qwen2moe.expert_used_count", 4));
  EXPECT_EQ(field(spec, "architectures"), R"(["Qwen2MoeForCausalLM"])");
  EXPECT_EQ(field(spec, "norm_topk_prob"), "false");
  EXPECT_EQ(field(spec, "shared_expert_intermediate_size"), "64");
  EXPECT_EQ(field(spec, "moe_intermediate_size"), "16");
  EXPECT_EQ(field(spec, "qkv_bias"), "false");
  put(spec, GgufSpec::kv_u32("qwen2moe.expert_shared_feed_forward_length", 48));
  put(spec, GgufSpec::kv_u32("qwen2moe.expert_feed_forward_length", 24));
  spec.tensors.push_back({"blk.0.attn_q.bias", {32}, 0, floats(32)});
  spec.tensors.push_back({"blk.0.ffn_gate_inp_shexp.weight", {32}, 0, floats(32)});
  EXPECT_EQ(field(spec, "shared_expert_intermediate_size"), "48");
  EXPECT_EQ(field(spec, "moe_intermediate_size"), "24");
  EXPECT_EQ(field(spec, "qkv_bias"), "true");
  with_file(spec, [](const auto& path) {
    const auto gate = (*Checkpoint::open(path))->find("model.layers.0.mlp.shared_expert_gate.weight");
    EXPECT_TRUE(gate.ok()) << gate.status().message();
    ASSERT_TRUE(gate.ok());
    EXPECT_EQ(gate->view.shape, (Shape{1, 32}));
  });
}

TEST(GgufGlm4Moe, ASigmoidIsTakenForGranted) {
  GgufSpec spec = base("glm4moe");
  put(spec, GgufSpec::kv_u32("glm4moe.expert_count", 8));
  put(spec, GgufSpec::kv_u32("glm4moe.expert_used_count", 2));
  put(spec, GgufSpec::kv_u32("glm4moe.expert_shared_count", 1));
  put(spec, GgufSpec::kv_u32("glm4moe.leading_dense_block_count", 1));
  put(spec, GgufSpec::kv_f32("glm4moe.expert_weights_scale", 2.5F));
  put(spec, GgufSpec::kv_u32("glm4moe.nextn_predict_layers", 1));
  EXPECT_EQ(field(spec, "architectures"), R"(["Glm4MoeForCausalLM"])");
  EXPECT_EQ(field(spec, "num_hidden_layers"), "1");
  EXPECT_EQ(field(spec, "first_k_dense_replace"), "1");
  EXPECT_EQ(field(spec, "n_shared_experts"), "1");
  EXPECT_EQ(field(spec, "routed_scaling_factor"), "2.5");
  EXPECT_EQ(field(spec, "norm_topk_prob"), "false");
  EXPECT_EQ(field(spec, "n_group"), "1");
  EXPECT_EQ(field(spec, "use_qk_norm"), "false");
  put(spec, GgufSpec::kv_u32("glm4moe.expert_gating_func", 2));
  spec.tensors.push_back({"blk.0.attn_q_norm.weight", {16}, 0, floats(16)});
  EXPECT_EQ(field(spec, "use_qk_norm"), "true");
  put(spec, GgufSpec::kv_u32("glm4moe.expert_gating_func", 1));
  EXPECT_THAT(field(spec, "n_group"),
              HasSubstr("glm4moe.expert_gating_func is 1; experts of glm4moe are scored by a sigmoid (2)"));
}

TEST(GgufGraniteMoe, MultipliersAndAMatrixInHalves) {
  GgufSpec spec = base("granitemoe");
  put(spec, GgufSpec::kv_u32("granitemoe.expert_count", 2));
  put(spec, GgufSpec::kv_u32("granitemoe.expert_used_count", 2));
  EXPECT_EQ(field(spec, "architectures"), R"(["GraniteMoeSharedForCausalLM"])");
  EXPECT_EQ(field(spec, "shared_intermediate_size"), "0");
  EXPECT_EQ(field(spec, "attention_multiplier"), "0.25") << "as its readers have it where the file does not say";
  for (const char* key : {"attention.scale", "embedding_scale", "residual_scale", "logit_scale"}) {
    put(spec, GgufSpec::kv_f32(std::string("granitemoe.") + key, 0.1F));
  }
  put(spec, GgufSpec::kv_u32("granitemoe.expert_shared_feed_forward_length", 2));
  for (const char* key : {"attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling"}) {
    EXPECT_EQ(field(spec, key), "0.1") << key;
  }
  EXPECT_EQ(field(spec, "shared_intermediate_size"), "2");
  spec.tensors = {{"blk.0.ffn_gate_exps.weight", {3, 2, 2}, 0, floats(12)},
                  {"blk.0.ffn_up_exps.weight", {3, 2, 2}, 0, floats(12)},
                  {"blk.0.ffn_gate_shexp.weight", {3, 2}, 0, floats(6)},
                  {"blk.0.ffn_up_shexp.weight", {3, 2}, 0, floats(6)}};
  with_file(spec, [](const auto& path) {
    const auto checkpoint = *Checkpoint::open(path);
    for (const char* name : {"block_sparse_moe.experts.1.gate_up_proj", "shared_mlp.input_linear"}) {
      const auto weight = checkpoint->find(fmt::format("model.layers.0.{}.weight", name));
      EXPECT_TRUE(weight.ok()) << weight.status().message();
      if (!weight.ok()) continue;
      EXPECT_EQ(weight->view.shape, (Shape{4, 3})) << name;
      EXPECT_EQ(weight->parts.size(), 2u) << name;
      EXPECT_EQ(weight->parts[0].rows, 2) << name << ": all of the gate, then all of the up";
    }
  });
}

TEST(GgufErnieMoe, LayersAndTheBiasOfItsRouter) {
  GgufSpec spec = base("ernie4_5-moe");
  put(spec, GgufSpec::kv_u32("ernie4_5-moe.expert_count", 4));
  put(spec, GgufSpec::kv_u32("ernie4_5-moe.expert_used_count", 2));
  put(spec, GgufSpec::kv_u32("ernie4_5-moe.expert_shared_count", 2));
  put(spec, GgufSpec::kv_u32("ernie4_5-moe.leading_dense_block_count", 1));
  put(spec, GgufSpec::kv_u32("ernie4_5-moe.interleave_moe_layer_step", 2));
  spec.tensors.push_back({"blk.1.exp_probs_b.bias", {4}, 0, floats(4)});
  EXPECT_EQ(field(spec, "moe_num_shared_experts"), "2");
  EXPECT_EQ(field(spec, "moe_layer_start_index"), "1");
  EXPECT_EQ(field(spec, "moe_layer_interval"), "2");
  with_file(spec, [](const auto& path) {
    const auto bias = (*Checkpoint::open(path))->find("model.layers.1.mlp.moe_statics.e_score_correction_bias");
    EXPECT_TRUE(bias.ok()) << bias.status().message();
    ASSERT_TRUE(bias.ok());
    EXPECT_EQ(bias->view.shape, (Shape{1, 4}));
  });
}

TEST(GgufLlama4, WhatItsReadersKnowByHeart) {
  GgufSpec spec = base("llama4");
  put(spec, GgufSpec::kv_u32("llama4.expert_count", 16));
  put(spec, GgufSpec::kv_u32("llama4.expert_used_count", 1));
  put(spec, GgufSpec::kv_u32("llama4.expert_feed_forward_length", 24));
  put(spec, GgufSpec::kv_u32("llama4.interleave_moe_layer_step", 2));
  EXPECT_EQ(field(spec, "architectures"), R"(["Llama4ForCausalLM"])");
  EXPECT_EQ(field(spec, "intermediate_size"), "24");
  EXPECT_EQ(field(spec, "intermediate_size_mlp"), "64");
  EXPECT_EQ(field(spec, "interleave_moe_layer_step"), "2");
  EXPECT_EQ(field(spec, "use_qk_norm"), "true");
  put(spec, GgufSpec::kv_u32("llama4.expert_count", 128));
  EXPECT_EQ(field(spec, "use_qk_norm"), "false");
  put(spec, GgufSpec::kv_u32("llama4.attention.sliding_window", 0));
  EXPECT_THAT(field(spec, "use_qk_norm"), HasSubstr("llama4.attention.sliding_window is 0"));
}

TEST(GgufMiniMaxM2, PartOfAHeadTurns) {
  GgufSpec spec = base("minimax-m2");
  put(spec, GgufSpec::kv_u32("minimax-m2.expert_count", 4));
  put(spec, GgufSpec::kv_u32("minimax-m2.expert_used_count", 2));
  put(spec, GgufSpec::kv_u32("minimax-m2.rope.dimension_count", 8));
  spec.tensors.push_back({"blk.0.exp_probs_b.bias", {4}, 0, floats(4)});
  EXPECT_EQ(field(spec, "architectures"), R"(["MiniMaxM2ForCausalLM"])");
  EXPECT_EQ(field(spec, "partial_rotary_factor"), "0.5");
  with_file(spec, [](const auto& path) {
    EXPECT_TRUE((*Checkpoint::open(path))->contains("model.layers.0.block_sparse_moe.e_score_correction_bias"));
  });
}

TEST(GgufGptOss, ItsYarnIsNotCutToWholeNumbers) {
  GgufSpec spec = base("gpt-oss");
  put(spec, GgufSpec::kv_u32("gpt-oss.expert_count", 4));
  put(spec, GgufSpec::kv_u32("gpt-oss.expert_used_count", 2));
  EXPECT_THAT(field(spec, "hidden_size"), HasSubstr("gpt-oss.expert_feed_forward_length is missing"));
  put(spec, GgufSpec::kv_u32("gpt-oss.expert_feed_forward_length", 24));
  put(spec, GgufSpec::kv_string("gpt-oss.rope.scaling.type", "yarn"));
  put(spec, GgufSpec::kv_f32("gpt-oss.rope.scaling.factor", 32));
  put(spec, GgufSpec::kv_u32("gpt-oss.attention.sliding_window", 128));
  EXPECT_EQ(field(spec, "rope_scaling"), R"({"rope_type": "yarn", "factor": 32.0, "truncate": false})");
  EXPECT_EQ(field(spec, "intermediate_size"), "24");
  EXPECT_EQ(field(spec, "sliding_window"), "128");
  EXPECT_EQ(field(spec, "num_experts"), "4");
}

std::string window_pattern(std::initializer_list<bool> layers) {
  std::string out = le<uint32_t>(7) + le<uint64_t>(layers.size());
  for (const bool windowed : layers) out += windowed ? '\1' : '\0';
  return out;
}

constexpr const char* kLayerTypes = "layer_types";

TEST(GgufOlmo, AWindowTellsThirdFromSecond) {
  GgufSpec spec = base("olmo2");
  EXPECT_EQ(field(spec, "architectures"), R"(["Olmo2ForCausalLM"])");
  put(spec, GgufSpec::kv_f32("olmo2.rope.freq_base", 5e5F));
  put(spec, GgufSpec::kv_u32("olmo2.attention.sliding_window", 16));
  EXPECT_EQ(field(spec, "architectures"), R"(["Olmo3ForCausalLM"])");
  EXPECT_EQ(field(spec, "rope_local_base_freq"), "500000.0");
  EXPECT_EQ(field(spec, kLayerTypes), R"(["sliding_attention", "sliding_attention"])");
  put(spec, GgufSpec::kv("olmo2.attention.sliding_window_pattern", 9, window_pattern({false, true})));
  EXPECT_EQ(field(spec, kLayerTypes), R"(["full_attention", "sliding_attention"])");
  put(spec, GgufSpec::kv_u32("olmo2.attention.sliding_window_pattern", 2));
  EXPECT_EQ(field(spec, kLayerTypes), R"(["sliding_attention", "full_attention"])");
  put(spec, GgufSpec::kv("olmo2.attention.sliding_window_pattern", 9, window_pattern({false})));
  EXPECT_THAT(field(spec, kLayerTypes), HasSubstr("has 1 entries for 2 layers"));
  put(spec, GgufSpec::kv_u32("olmo2.attention.sliding_window_pattern", 0));
  EXPECT_THAT(field(spec, kLayerTypes), HasSubstr("sliding_window_pattern is 0"));
}

TEST(GgufGranite, ItsMultipliersHaveOtherNames) {
  GgufSpec spec = base("granite");
  EXPECT_EQ(field(spec, "attention_multiplier"), "0.25") << "what its readers take for a file that has none";
  put(spec, GgufSpec::kv_f32("granite.attention.scale", 0.5F));
  put(spec, GgufSpec::kv_f32("granite.embedding_scale", 12));
  put(spec, GgufSpec::kv_f32("granite.residual_scale", 0.22F));
  put(spec, GgufSpec::kv_f32("granite.logit_scale", 8));
  EXPECT_EQ(field(spec, "attention_multiplier"), "0.5");
  EXPECT_EQ(field(spec, "embedding_multiplier"), "12.0");
  EXPECT_EQ(field(spec, "residual_multiplier"), "0.22");
  EXPECT_EQ(field(spec, "logits_scaling"), "8.0");
  put(spec, GgufSpec::kv("granite.rope.scaling.finetuned", 7, std::string(1, '\0')));
  EXPECT_THAT(field(spec, "logits_scaling"), HasSubstr("granite.rope.scaling.finetuned is false"));
}

TEST(GgufMistral3, ItsQueriesGrowOrItIsMistral) {
  GgufSpec spec = base("mistral3");
  EXPECT_EQ(field(spec, "architectures"), R"(["MistralForCausalLM"])");
  EXPECT_EQ(field(spec, "sliding_window"), "null");
  put(spec, GgufSpec::kv_string("mistral3.rope.scaling.type", "yarn"));
  put(spec, GgufSpec::kv_f32("mistral3.rope.scaling.factor", 16));
  put(spec, GgufSpec::kv_u32("mistral3.rope.scaling.original_context_length", 64));
  put(spec, GgufSpec::kv_f32("mistral3.attention.temperature_scale", 0.1F));
  EXPECT_EQ(field(spec, "architectures"), R"(["Ministral3ForCausalLM"])");
  EXPECT_EQ(field(spec, "rope_scaling"), R"({"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64, )"
                                         R"("mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1})");
}

GgufSpec latent(const std::string& name) {
  GgufSpec spec = base(name);
  for (const auto& [key, value] : std::vector<std::pair<const char*, uint32_t>>{{"attention.kv_lora_rank", 3},
                                                                                {"attention.key_length", 7},
                                                                                {"attention.value_length", 3},
                                                                                {"attention.key_length_mla", 6},
                                                                                {"attention.value_length_mla", 1},
                                                                                {"rope.dimension_count", 4},
                                                                                {"expert_count", 160},
                                                                                {"expert_used_count", 2},
                                                                                {"expert_feed_forward_length", 16}}) {
    spec.metadata.push_back(GgufSpec::kv_u32(fmt::format("{}.{}", name, key), value));
  }
  return spec;
}

TEST(GgufMistral4, IsLatentAndItsQueriesGrow) {
  GgufSpec spec = latent("mistral4");
  EXPECT_EQ(field(spec, "architectures"), R"(["Mistral4ForCausalLM"])");
  EXPECT_EQ(field(spec, "qk_nope_head_dim"), "2");
  EXPECT_EQ(field(spec, "n_group"), "1");  // none, whatever the number of experts is
  put(spec, GgufSpec::kv_string("mistral4.rope.scaling.type", "yarn"));
  put(spec, GgufSpec::kv_f32("mistral4.rope.scaling.factor", 128));
  put(spec, GgufSpec::kv_u32("mistral4.rope.scaling.original_context_length", 8192));
  put(spec, GgufSpec::kv_f32("mistral4.rope.scaling.yarn_log_multiplier", 0.1F));
  const std::string yarn = R"({"rope_type": "yarn", "factor": 128.0, "original_max_position_embeddings": 8192, )";
  const std::string mscales = R"("mscale": 1.0, "mscale_all_dim": 1.0})";
  EXPECT_EQ(field(spec, "rope_scaling"), yarn + R"("llama_4_scaling_beta": 0.1, )" + mscales);
  put(spec, GgufSpec::kv_f32("mistral4.attention.temperature_scale", 0.2F));
  put(spec, GgufSpec::kv_u32("mistral4.attention.temperature_length", 8192));
  EXPECT_EQ(field(spec, "rope_scaling"), yarn + R"("llama_4_scaling_beta": 0.2, )" + mscales);
  put(spec, GgufSpec::kv_u32("mistral4.attention.temperature_length", 4096));
  EXPECT_THAT(field(spec, "rope_scaling"), HasSubstr("mistral4.attention.temperature_length is 4096; "
                                                     "rope.scaling.original_context_length, 8192, is supported"));
}

TEST(GgufDeepseek, V32HasAnIndexer) {
  GgufSpec spec = latent("deepseek32");
  EXPECT_THAT(field(spec, "index_topk"), HasSubstr("deepseek32.attention.indexer.top_k is missing"));
  put(spec, GgufSpec::kv_u32("deepseek32.attention.indexer.top_k", 2048));
  EXPECT_EQ(field(spec, "architectures"), R"(["DeepseekV32ForCausalLM"])");
  EXPECT_EQ(field(spec, "index_topk"), "2048");
  EXPECT_EQ(field(spec, "n_group"), "1");
  put(spec, GgufSpec::kv_u32("deepseek32.expert_gating_func", 1));
  EXPECT_THAT(field(spec, "index_topk"), HasSubstr("experts of deepseek32 are scored by a sigmoid"));
}

// Mistral Large 3 has this name and such queries.
TEST(GgufDeepseek, QueriesThatGrowAreRefused) {
  GgufSpec spec = deepseek();
  put(spec, GgufSpec::kv_f32("deepseek2.attention.temperature_scale", 0.1F));
  EXPECT_THAT(field(spec, "n_group"), HasSubstr("deepseek2.attention.temperature_scale: queries that grow"));
}

TEST(GgufGlm, PositionsInSectionsAreRefused) {
  GgufSpec spec = base("glm4");
  EXPECT_EQ(field(spec, "architectures"), R"(["Glm4ForCausalLM"])");
  put(spec, GgufSpec::kv_u32("glm4.nextn_predict_layers", 1));
  EXPECT_THAT(field(spec, "hidden_size"), HasSubstr("glm4.nextn_predict_layers"));
}

TEST(GgufExaone4, OneWithoutAWindowSaysSo) {
  GgufSpec spec = base("exaone4");
  EXPECT_EQ(field(spec, "sliding_window"), "null");
  EXPECT_EQ(field(spec, kLayerTypes), "absent");
  put(spec, GgufSpec::kv_u32("exaone4.attention.sliding_window", 16));
  EXPECT_EQ(field(spec, kLayerTypes), R"(["sliding_attention", "sliding_attention"])");
  spec = base("exaone4");
  put(spec, GgufSpec::kv_u32("exaone4.block_count", 64));
  EXPECT_EQ(field(spec, "sliding_window"), "4096") << "of the largest, in its first files";
}

TEST(GgufCohere, ItsNormsHaveAnEpsilonOfTheirOwn) {
  GgufSpec spec = base("cohere2");
  EXPECT_THAT(field(spec, "layer_norm_eps"), HasSubstr("cohere2.attention.layer_norm_epsilon is missing"));
  put(spec, GgufSpec::kv_f32("cohere2.attention.layer_norm_epsilon", 1e-5F));
  put(spec, GgufSpec::kv_f32("cohere2.logit_scale", 0.25F));
  put(spec, GgufSpec::kv_u32("cohere2.attention.sliding_window", 16));
  EXPECT_EQ(field(spec, "layer_norm_eps"), "1e-05");
  EXPECT_EQ(field(spec, "rms_norm_eps"), "absent");
  EXPECT_EQ(field(spec, "logit_scale"), "0.25");
  EXPECT_EQ(field(spec, kLayerTypes), R"(["sliding_attention", "sliding_attention"])");
}

TEST(GgufBiases, OfOneFieldOrTwo) {
  GgufSpec spec = base("ernie4_5");
  EXPECT_EQ(field(spec, "use_bias"), "false");
  spec.tensors.push_back({"blk.0.attn_q.bias", {2}, 0, floats(2)});
  EXPECT_EQ(field(spec, "use_bias"), "true");
  spec = base("seed_oss");
  spec.tensors.push_back({"blk.0.attn_q.bias", {2}, 0, floats(2)});
  EXPECT_EQ(field(spec, "attention_bias"), "true");
  EXPECT_EQ(field(spec, "attention_out_bias"), "false");
}

// The Hugging Face names of the tensors, or the error.
std::vector<std::string> names_of(const GgufSpec& spec) {
  return with_file(spec, [](const auto& path) -> std::vector<std::string> {
    const auto checkpoint = Checkpoint::open(path);
    if (!checkpoint.ok()) return {checkpoint.status().message()};
    return (*checkpoint)->names();
  });
}

GgufSpec delta_nets(uint32_t inner = 24) {
  GgufSpec spec = base("qwen35");
  for (const auto& [key, value] : std::vector<std::pair<const char*, uint32_t>>{{"ssm.group_count", 2},
                                                                                {"ssm.time_step_rank", 6},
                                                                                {"ssm.state_size", 8},
                                                                                {"ssm.inner_size", inner},
                                                                                {"ssm.conv_kernel", 4},
                                                                                {"rope.dimension_count", 4},
                                                                                {"full_attention_interval", 2}}) {
    spec.metadata.push_back(GgufSpec::kv_u32(std::string("qwen35.") + key, value));
  }
  spec.tensors.push_back({"blk.0.ssm_a", {6}, 0, floats(6)});
  spec.tensors.push_back({"blk.0.ssm_conv1d.weight", {4, 56}, 0, floats(224)});
  spec.tensors.push_back({"blk.0.ssm_norm.weight", {4}, 0, floats(4)});
  spec.tensors.push_back({"blk.0.attn_norm.weight", {32}, 0, floats(32)});
  return spec;
}

TEST(GgufQwen35, SizesOfDeltaNets) {
  const GgufSpec spec = delta_nets();
  EXPECT_EQ(field(spec, "architectures"), R"(["Qwen3_5ForCausalLM"])");
  EXPECT_EQ(field(spec, "linear_num_key_heads"), "2");
  EXPECT_EQ(field(spec, "linear_num_value_heads"), "6");
  EXPECT_EQ(field(spec, "linear_key_head_dim"), "8");
  EXPECT_EQ(field(spec, "linear_value_head_dim"), "4");
  EXPECT_EQ(field(spec, "full_attention_interval"), "2");
  EXPECT_EQ(field(spec, "partial_rotary_factor"), "0.25");
  EXPECT_EQ(field(spec, "linear_out_proj_tiled"), "true");
  EXPECT_THAT(field(delta_nets(25), "hidden_size"), HasSubstr("ssm.inner_size is 25"));
  GgufSpec more = delta_nets();
  more.metadata.push_back(GgufSpec::kv_u32("qwen35.nextn_predict_layers", 1));
  EXPECT_EQ(field(more, "num_hidden_layers"), "1");
}

// Value heads of the file: the first of both key heads, the second of both, the third.
TEST(GgufQwen35, HeadsComeOutOfTheirTiles) {
  with_file(delta_nets(), [](const auto& path) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto find = [&](const char* name) { return *(*checkpoint)->find(std::string("model.layers.0.") + name); };
    EXPECT_THAT(find("linear_attn.A").row_order, ::testing::ElementsAre(0, 2, 4, 1, 3, 5));
    const auto conv = find("linear_attn.conv1d.weight");
    EXPECT_EQ(conv.view.shape, (Shape{56, 1, 4}));
    ASSERT_EQ(conv.row_order.size(), 56U);
    EXPECT_EQ(conv.row_order[31], 31) << "queries and keys stay";
    EXPECT_EQ(conv.row_order[32 + 4], 32 + 8) << "the second head of the first key";
    EXPECT_EQ(find("linear_attn.norm.weight").added, 0);
    EXPECT_EQ(find("input_layernorm.weight").added, 1);
  });
}

GgufSpec granite_hybrid(const std::vector<uint32_t>& kv_heads) {
  GgufSpec spec = base("granitehybrid");
  for (const auto& [key, value] : std::vector<std::pair<const char*, uint32_t>>{{"ssm.group_count", 2},
                                                                                {"ssm.time_step_rank", 4},
                                                                                {"ssm.state_size", 8},
                                                                                {"ssm.inner_size", 64},
                                                                                {"ssm.conv_kernel", 4},
                                                                                {"expert_count", 0}}) {
    spec.metadata.push_back(GgufSpec::kv_u32(std::string("granitehybrid.") + key, value));
  }
  spec.metadata.push_back(array_of("granitehybrid.attention.head_count_kv", 4, kv_heads));
  spec.tensors.push_back({"blk.0.ssm_a", {1, 4}, 0, floats(4)});
  spec.tensors.push_back({"blk.0.ssm_d", {1, 4}, 0, floats(4)});
  spec.tensors.push_back({"blk.0.ssm_conv1d.weight", {4, 96}, 0, floats(384)});
  spec.tensors.push_back({"blk.0.ssm_conv1d.bias", {96}, 0, floats(96)});
  spec.tensors.push_back({"blk.0.ssm_norm.weight", {32, 2}, 0, floats(64)});
  return spec;
}

TEST(GgufGraniteHybrid, LayersWithoutKeysAreMamba2s) {
  GgufSpec spec = granite_hybrid({0, 2});
  EXPECT_EQ(field(spec, "architectures"), R"(["GraniteMoeHybridForCausalLM"])");
  EXPECT_EQ(field(spec, kLayerTypes), R"(["linear_attention", "full_attention"])");
  EXPECT_EQ(field(spec, "num_key_value_heads"), "2");
  for (const auto& [key, value] :
       {std::pair("mamba_n_heads", "4"), std::pair("mamba_d_head", "16"), std::pair("mamba_n_groups", "2"),
        std::pair("mamba_d_state", "8"), std::pair("mamba_d_conv", "4"), std::pair("mamba_expand", "2"),
        std::pair("mamba_conv_bias", "true"), std::pair("mamba_proj_bias", "false"), std::pair("num_experts", "0"),
        std::pair("shared_intermediate_size", "64"), std::pair("position_embedding_type", "\"rope\""),
        std::pair("attention_multiplier", "0.25")}) {
    EXPECT_EQ(field(spec, key), value) << key;
  }
  put(spec, GgufSpec::kv("granitehybrid.rope.scaling.finetuned", 7, std::string(1, '\0')));
  EXPECT_EQ(field(spec, "position_embedding_type"), "\"nope\"");
  EXPECT_THAT(field(granite_hybrid({0, 2, 2}), kLayerTypes), HasSubstr("head_count_kv has 3 numbers for 2 layers"));
  EXPECT_THAT(field(granite_hybrid({1, 2}), kLayerTypes), HasSubstr("with 1 and with 2 key heads"));
  EXPECT_THAT(field(granite_hybrid({0, 0}), kLayerTypes), HasSubstr("no layer has a key head"));
  put(spec, GgufSpec::kv_u32("granitehybrid.ssm.inner_size", 60));
  EXPECT_THAT(field(spec, kLayerTypes), HasSubstr("ssm.inner_size is 60"));
}

TEST(GgufGraniteHybrid, ItsVectorsAreVectorsAgain) {
  with_file(granite_hybrid({0, 2}), [](const auto& path) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto shape = [&](const char* name) {
      return (*checkpoint)->find(std::string("model.layers.0.mamba.") + name)->view.shape;
    };
    EXPECT_EQ(shape("A"), (Shape{4}));
    EXPECT_EQ(shape("D"), (Shape{4}));
    EXPECT_EQ(shape("norm.weight"), (Shape{64}));
    EXPECT_EQ(shape("conv1d.weight"), (Shape{96, 1, 4}));
    EXPECT_EQ(shape("conv1d.bias"), (Shape{96}));
  });
}

TEST(GgufParts, KeysAndValuesAreOneMatrix) {
  GgufSpec spec = deepseek();
  spec.tensors = {{"blk.0.attn_k_b.weight", {2, 3, 2}, 0, floats(12)}, {"blk.0.attn_v_b.weight", {3, 1, 2}, 0, floats(6)}};
  with_file(spec, [](const auto& path) {
    const auto checkpoint = *Checkpoint::open(path);
    const auto weight = checkpoint->find("model.layers.0.self_attn.kv_b_proj.weight");
    EXPECT_TRUE(weight.ok()) << weight.status().message();
    if (!weight.ok()) return;
    EXPECT_EQ(weight->view.shape, (Shape{6, 3}));
    EXPECT_EQ(weight->parts.size(), 2u);
    EXPECT_TRUE(weight->parts[0].transposed);
    EXPECT_FALSE(weight->parts[1].transposed);
    EXPECT_EQ(weight->parts[0].rows, 2);
    EXPECT_EQ(weight->parts[1].rows, 1);
  });
  spec.tensors.push_back({"blk.0.attn_kv_b.weight", {3, 6}, 0, floats(18)});
  EXPECT_THAT(names_of(spec), ::testing::ElementsAre("model.layers.0.self_attn.kv_b_proj.weight"))
      << "the whole beside its parts";
}

TEST(GgufParts, OnesThatDoNotFitAreNamed) {
  GgufSpec spec = deepseek();
  spec.tensors = {{"blk.0.attn_v_b.weight", {3, 1, 2}, 0, floats(6)}};
  EXPECT_THAT(names_of(spec).at(0), HasSubstr("has 'blk.0.attn_v_b.weight', but not 'blk.0.attn_k_b.weight'"));
  for (const auto& dims : std::vector<std::vector<uint64_t>>{{2, 2, 3}, {12}, {2, 6}, {4, 3, 1}}) {
    auto wrong = spec;
    wrong.tensors.push_back({"blk.0.attn_k_b.weight", dims, 0, floats(12)});
    EXPECT_THAT(names_of(wrong).at(0), HasSubstr("are no parts of one matrix"));
  }
  spec = base("gpt-oss");
  put(spec, GgufSpec::kv_u32("gpt-oss.expert_count", 2));
  spec.tensors = {{"blk.0.ffn_gate_exps.bias", {3, 2}, 0, floats(6)}, {"blk.0.ffn_up_exps.bias", {2, 3}, 0, floats(6)}};
  EXPECT_THAT(names_of(spec).at(0), HasSubstr("are no parts of one matrix"));
  spec.tensors[1].dims = {3, 2};
  EXPECT_THAT(names_of(spec), ::testing::ElementsAre("model.layers.0.mlp.experts.0.gate_up_proj.bias",
                                                     "model.layers.0.mlp.experts.1.gate_up_proj.bias"));
  spec.tensors[0].dims = spec.tensors[1].dims = {6};
  EXPECT_THAT(names_of(spec).at(0), HasSubstr("[experts, rows] is wanted"));
}

}  // namespace
}  // namespace choral::io::family_test
