#include "models/models_test.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>

#include "models/decoder.h"
#include "models/families.h"
#include "models/rope_config.h"

namespace choral::models {
namespace {

std::string llama(const std::string& more = "") {
  return R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 256)" +
         more + "}";
}

TEST_F(ModelsTest, BuildsWhatTheConfigSays) {
  const auto model = make(llama());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto kv = (*model)->kv_shapes();
  ASSERT_EQ(kv.size(), 2u);
  EXPECT_EQ(kv[1].kv_heads, 2);
  EXPECT_EQ(kv[1].key_dim, 16);
  EXPECT_EQ(kv[1].value_dim, 16);
  EXPECT_EQ((*model)->modules().size(), 2u * 6 + 3);  // 2 norms, qkv, o, gate_up, down a layer; embedding, norm, head
}

TEST_F(ModelsTest, TiedWeightsHaveNoHead) {
  const auto model = make(llama(R"(, "tie_word_embeddings": true)"));
  ASSERT_TRUE(model.ok());
  for (const auto* module : (*model)->modules()) EXPECT_NE(module->prefix(), "lm_head");
}

TEST_F(ModelsTest, UnknownArchitecturesListTheKnownOnes) {
  const auto status = make(R"({"architectures": ["MambaForCausalLM"]})").status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("Qwen3ForCausalLM"), std::string::npos);
}

TEST_F(ModelsTest, AnEpsilonIsNoNegativeNumber) {
  for (const char* eps : {"-1", "-1e-30", "2"}) {
    const auto status = make(llama(fmt::format(R"(, "rms_norm_eps": {})", eps))).status();
    EXPECT_EQ(status.code(), Code::kCorrupt) << eps;
    EXPECT_NE(status.message().find("config.json: rms_norm_eps is "), std::string::npos) << status.message();
  }
  EXPECT_TRUE(make(llama(R"(, "rms_norm_eps": 0)")).ok());
}

TEST_F(ModelsTest, ImpossibleShapesAreNamed) {
  const auto message = [&](const std::string& more) { return make(llama(more)).status().message(); };
  std::string odd = llama();
  odd.replace(odd.find("\"num_key_value_heads\": 2"), 24, "\"num_key_value_heads\": 3");
  EXPECT_NE(make(odd).status().message().find("num_key_value_heads"), std::string::npos);
  EXPECT_NE(message(R"(, "rope_scaling": {"rope_type": "spiral"})").find("spiral"), std::string::npos);
  EXPECT_NE(message(R"(, "partial_rotary_factor": 2.0)").find("partial_rotary_factor"), std::string::npos);
  EXPECT_NE(message(R"(, "hidden_act": "relu6")").find("relu6"), std::string::npos);
  EXPECT_NE(message(R"(, "head_dim": -4)").find("head_dim"), std::string::npos);
}

TEST_F(ModelsTest, QwenWindowsFollowTheConfig) {
  const auto windows = [&](const std::string& json) { return *read_qwen_windows(config(json), 4); };
  EXPECT_EQ(windows(R"({"sliding_window": 16})"), (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 3})"),
            (std::vector<int64_t>{0, 0, 0, 16}));
  EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 16,
                        "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]})"),
            (std::vector<int64_t>{0, 16, 0, 16}));
}

std::string mixture(const std::string& architecture, const std::string& more = "") {
  return R"({"architectures": [")" + architecture + R"("], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 100, "num_experts": 4,
             "num_experts_per_tok": 2, "moe_intermediate_size": 32, "max_position_embeddings": 256)" +
         more + "}";
}

TEST_F(ModelsTest, EachFamilyHasItsWindows) {
  const auto windows = [&](const std::string& json) {
    const auto model = make(json);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    std::vector<int64_t> seen;
    for (const auto& shape : (*model)->kv_shapes()) seen.push_back(shape.window);
    return seen;
  };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(
      windows(mixture("Qwen3MoeForCausalLM", R"(, "use_sliding_window": true, "sliding_window": 16, "max_window_layers": 2)")),
      (Windows{16, 16, 16}));
  EXPECT_EQ(windows(mixture("Qwen3MoeForCausalLM", R"(, "use_sliding_window": true)")), (Windows{4096, 4096, 4096}));
  EXPECT_EQ(windows(mixture("Qwen3MoeForCausalLM", R"(, "sliding_window": 16)")), (Windows{0, 0, 0}));
  EXPECT_EQ(windows(mixture("MistralForCausalLM", R"(, "sliding_window": 16)")), (Windows{16, 16, 16}));
  EXPECT_EQ(windows(mixture("MistralForCausalLM", R"(, "sliding_window": null)")), (Windows{0, 0, 0}));
  EXPECT_EQ(windows(mixture("MistralForCausalLM")), (Windows{4096, 4096, 4096}));
  EXPECT_EQ(windows(mixture("MistralForCausalLM", R"(, "sliding_window": 16,
      "layer_types": ["full_attention", "sliding_attention", "full_attention"])")),
            (Windows{0, 16, 0}));
}

TEST_F(ModelsTest, LayerTypesAreKnownOrRefused) {
  EXPECT_EQ(*read_layer_windows(config(R"({"layer_types": ["sliding_attention", "full_attention"]})"), 2, 16),
            (std::vector<int64_t>{16, 0}));
  const auto refusal = [&](const std::string& json) { return read_layer_windows(config(json), 2, 16).status().message(); };
  EXPECT_NE(refusal(R"({"layer_types": ["full_attention", "linear_attention"]})").find("linear_attention"), std::string::npos);
  EXPECT_NE(refusal(R"({"layer_types": ["full_attention"]})").find("1 entries for 2 layers"), std::string::npos);
}

std::string gemma(const std::string& version, const std::string& more = "") {
  return R"({"architectures": ["Gemma)" + version + R"(ForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 100,
             "max_position_embeddings": 256)" +
         more + "}";
}

TEST_F(ModelsTest, GemmaHasFourNormsALayerAndTiesItsWeights) {
  const auto model = make(gemma("2"));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  std::vector<std::string> norms;
  for (const auto* module : (*model)->modules()) {
    EXPECT_NE(module->prefix(), "lm_head");
    if (module->prefix().starts_with("model.layers.1.") && module->prefix().ends_with("norm")) norms.push_back(module->prefix());
  }
  EXPECT_EQ(norms,
            (std::vector<std::string>{"model.layers.1.input_layernorm", "model.layers.1.post_attention_layernorm",
                                      "model.layers.1.pre_feedforward_layernorm", "model.layers.1.post_feedforward_layernorm"}));
  for (const auto& target : (*model)->lora_targets()) {
    EXPECT_EQ(target.stored_less, target.kind == lora::TargetKind::kNorm ? 1.0F : 0.0F) << target.name;
  }
}

TEST_F(ModelsTest, WhatGemmaCannotDoIsNamed) {
  const auto refusal = [&](const std::string& version, const std::string& more) {
    return make(gemma(version, more)).status().message();
  };
  EXPECT_NE(refusal("3", R"(, "use_bidirectional_attention": true)").find("use_bidirectional_attention"), std::string::npos);
  EXPECT_NE(refusal("3", R"(, "attn_logit_softcapping": 50.0)").find("attn_logit_softcapping"), std::string::npos);
  EXPECT_NE(refusal("2", R"(, "attn_logit_softcapping": -1)").find("attn_logit_softcapping"), std::string::npos);
  EXPECT_NE(refusal("2", R"(, "final_logit_softcapping": 0)").find("final_logit_softcapping"), std::string::npos);
  EXPECT_NE(refusal("2", R"(, "query_pre_attn_scalar": 0)").find("query_pre_attn_scalar"), std::string::npos);
  EXPECT_NE(refusal("2", R"(, "hidden_activation": "relu6")").find("relu6"), std::string::npos);
  EXPECT_NE(refusal("2", R"(, "layer_types": ["full_attention", "chunked_attention"])").find("chunked_attention"),
            std::string::npos);
  std::string headless = gemma("2");
  headless.replace(headless.find("\"head_dim\": 24, "), 16, "");
  EXPECT_NE(make(headless).status().message().find("head_dim"), std::string::npos);
  EXPECT_TRUE(make(gemma("2", R"(, "attn_logit_softcapping": null, "final_logit_softcapping": null)")).ok());
}

TEST_F(ModelsTest, LayersHaveExpertsOrAnMlp) {
  const auto outputs = [&](const std::string& json) {
    std::map<std::string, int64_t> rows;
    const auto model = make(json);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    if (!model.ok()) return rows;
    for (const auto& target : (*model)->lora_targets()) {
      if (!target.members.empty()) rows[target.name] = target.members[0].out;
    }
    return rows;
  };
  const auto qwen = outputs(mixture("Qwen3MoeForCausalLM", R"(, "mlp_only_layers": [0])"));
  EXPECT_EQ(qwen.count("model.layers.0.mlp.gate"), 0u);
  EXPECT_EQ(qwen.at("model.layers.0.mlp.gate_up_proj"), 128);
  EXPECT_EQ(qwen.at("model.layers.1.mlp.gate"), 4) << "adapters reach the router";
  EXPECT_EQ(qwen.at("model.layers.2.mlp.experts.3.gate_up_proj"), 32);
  const auto sparse = outputs(mixture("Qwen3MoeForCausalLM", R"(, "decoder_sparse_step": 2)"));
  EXPECT_EQ(sparse.count("model.layers.0.mlp.gate") + sparse.count("model.layers.2.mlp.gate"), 0u);
  EXPECT_EQ(sparse.count("model.layers.1.mlp.gate"), 1u);
  const auto mixtral = outputs(mixture("MixtralForCausalLM"));
  EXPECT_EQ(mixtral.at("model.layers.0.block_sparse_moe.experts.0.gate_up_proj"), 128);
  EXPECT_EQ(mixtral.at("model.layers.0.block_sparse_moe.experts.3.w2"), 64);
}

TEST_F(ModelsTest, OlmoeNormsAllHeadsAtOnceAndHasExpertsInEveryLayer) {
  const auto model = make(mixture("OlmoeForCausalLM"));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  std::map<std::string, int64_t> norms;
  std::map<std::string, int64_t> outputs;
  for (const auto& target : (*model)->lora_targets()) {
    if (target.kind == lora::TargetKind::kNorm) norms[target.name] = target.in;
    if (!target.members.empty()) outputs[target.name] = target.members[0].out;
  }
  EXPECT_EQ(norms.at("model.layers.1.self_attn.q_norm"), 4 * 24);
  EXPECT_EQ(norms.at("model.layers.1.self_attn.k_norm"), 2 * 24);
  EXPECT_EQ(outputs.at("model.layers.0.mlp.gate"), 4);
  EXPECT_EQ(outputs.at("model.layers.2.mlp.experts.3.gate_up_proj"), 128);
}

TEST_F(ModelsTest, OlmoesLimitsAreRefused) {
  const auto status = make(mixture("OlmoeForCausalLM", R"(, "clip_qkv": 8.0)")).status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("config.json: clip_qkv is 8.0"), std::string::npos) << status.message();
  EXPECT_TRUE(make(mixture("OlmoeForCausalLM", R"(, "clip_qkv": null)")).ok());
}

// What a model's layers have, by the names under which adapters know them: how many columns each puts out.
TEST_F(ModelsTest, Qwen2MoeHasASharedExpertWithAGate) {
  const std::string shared = R"(, "shared_expert_intermediate_size": 48)";
  const auto outputs = outputs_of(make(mixture("Qwen2MoeForCausalLM", shared + R"(, "mlp_only_layers": [1])")));
  EXPECT_EQ(outputs.at("model.layers.0.mlp.shared_expert.gate_up_proj"), 48);
  EXPECT_EQ(outputs.at("model.layers.0.mlp.shared_expert_gate"), 1);
  EXPECT_EQ(outputs.at("model.layers.2.mlp.experts.3.gate_up_proj"), 32);
  EXPECT_EQ(outputs.count("model.layers.1.mlp.gate"), 0u);
  EXPECT_EQ(outputs.at("model.layers.1.mlp.gate_up_proj"), 128);
  EXPECT_NE(make(mixture("Qwen2MoeForCausalLM")).status().message().find("shared_expert_intermediate_size is missing"),
            std::string::npos);
}

TEST_F(ModelsTest, Glm4MoeHasExpertsAfterItsFirstLayersAndNormsOnRequest) {
  const auto outputs = outputs_of(make(mixture("Glm4MoeForCausalLM", R"(, "n_shared_experts": 2, "use_qk_norm": true)")));
  EXPECT_EQ(outputs.at("model.layers.0.mlp.gate_up_proj"), 128);
  EXPECT_EQ(outputs.at("model.layers.1.mlp.gate"), 4);
  EXPECT_EQ(outputs.at("model.layers.1.mlp.shared_experts.gate_up_proj"), 64);
  EXPECT_EQ(outputs.count("model.layers.1.self_attn.q_norm"), 1u);
  const auto plain = outputs_of(make(mixture("Glm4MoeForCausalLM", R"(, "first_k_dense_replace": 0)")));
  EXPECT_EQ(plain.at("model.layers.0.mlp.shared_experts.gate_up_proj"), 32) << "one shared expert where the file says nothing";
  EXPECT_EQ(plain.count("model.layers.1.self_attn.q_norm"), 0u);
  const auto refused = make(mixture("Glm4MoeForCausalLM", R"(, "n_group": 3)")).status();
  EXPECT_NE(refused.message().find("n_group"), std::string::npos) << refused.message();
}

constexpr const char* kLatents =
    R"(, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16)";

TEST_F(ModelsTest, Glm4MoeLitesLayersHaveTwoSpellings) {
  const auto lite = [](const std::string& more) { return mixture("Glm4MoeLiteForCausalLM", kLatents + more); };
  const auto routers = [&](const std::string& more) {
    const auto outputs = outputs_of(make(lite(more)));
    std::vector<bool> seen;
    for (int i = 0; i < 3; ++i) seen.push_back(outputs.count(fmt::format("model.layers.{}.mlp.gate", i)) > 0);
    return seen;
  };
  EXPECT_EQ(routers(""), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(routers(R"(, "first_k_dense_replace": 2)"), (std::vector<bool>{false, false, true}));
  EXPECT_EQ(routers(R"(, "mlp_layer_types": ["sparse", "dense", "sparse"])"), (std::vector<bool>{true, false, true}));
  const auto refusal = [&](const std::string& more) { return make(lite(more)).status().message(); };
  EXPECT_NE(refusal(R"(, "mlp_layer_types": ["sparse", "sparse", "sparse"], "first_k_dense_replace": 1)").find("remove one"),
            std::string::npos);
  EXPECT_NE(refusal(R"(, "mlp_layer_types": ["sparse"])").find("1 entries for 3 layers"), std::string::npos);
  EXPECT_NE(refusal(R"(, "mlp_layer_types": ["sparse", "sparse", "moe"])").find("'moe' is not known"), std::string::npos);
}

TEST_F(ModelsTest, Mistral4ScalesQueriesByTheirPosition) {
  const auto made = [&](const std::string& rope) {
    return make(
        mixture("Mistral4ForCausalLM", kLatents + (R"(, "rope_scaling": {"rope_type": "yarn", "factor": 8)" + rope + "}")));
  };
  const auto outputs = outputs_of(made(R"(, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 32)"));
  EXPECT_EQ(outputs.at("model.layers.0.mlp.gate"), 4) << "all layers have experts where the file says nothing";
  EXPECT_EQ(outputs.at("model.layers.2.mlp.shared_experts.gate_up_proj"), 32) << "one shared expert, likewise";
  EXPECT_EQ(outputs.at("model.layers.1.self_attn.kv_a_proj_with_mqa"), 24);
  EXPECT_NE(made(R"(, "original_max_position_embeddings": 32)").status().message().find("llama_4_scaling_beta is missing"),
            std::string::npos);
  EXPECT_NE(made(R"(, "llama_4_scaling_beta": 0.1)").status().message().find("original_max_position_embeddings is missing"),
            std::string::npos);
  const auto turning = [&](double part) {
    return make(mixture("Mistral4ForCausalLM", kLatents + fmt::format(R"(, "partial_rotary_factor": {}, "rope_scaling": {{
        "rope_type": "yarn", "factor": 8, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 32}})",
                                                                      part)))
        .status()
        .message();
  };
  EXPECT_EQ(turning(8.0 / 24), "");
  EXPECT_NE(turning(0.5).find("partial_rotary_factor is 0.5, and qk_rope_head_dim 8 of 24"), std::string::npos) << turning(0.5);
}

TEST_F(ModelsTest, DeepSeekV32IsServedWhereItsIndexerChoosesAll) {
  const auto refusal = [&](const std::string& more) {
    return make(mixture("DeepseekV32ForCausalLM", kLatents + (R"(, "n_group": 1, "topk_group": 1)" + more))).status().message();
  };
  EXPECT_EQ(refusal(R"(, "index_topk": 256)"), "");
  EXPECT_EQ(refusal(""), "") << "2048 where the file says nothing";
  EXPECT_NE(refusal(R"(, "index_topk": 255)").find("give --max-model-len 255"), std::string::npos);
}

TEST_F(ModelsTest, GranitesMixturesHaveStackedExpertsAndASharedMlp) {
  const auto shared = outputs_of(make(mixture("GraniteMoeSharedForCausalLM", R"(, "shared_intermediate_size": 48)")));
  EXPECT_EQ(shared.at("model.layers.0.block_sparse_moe.experts.3.gate_up_proj"), 256);
  EXPECT_EQ(shared.at("model.layers.2.block_sparse_moe.router"), 4);
  EXPECT_EQ(shared.at("model.layers.1.shared_mlp.input_linear"), 96);
  EXPECT_EQ(shared.at("model.layers.1.shared_mlp.output_linear"), 64);
  for (const std::string architecture : {"GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"}) {
    const auto plain = outputs_of(make(mixture(architecture, R"(, "shared_intermediate_size": 0)")));
    EXPECT_EQ(plain.count("model.layers.1.shared_mlp.input_linear"), 0u) << architecture;
  }
  EXPECT_NE(make(mixture("GraniteMoeForCausalLM", R"(, "logits_scaling": 0)")).status().message().find("logits_scaling is 0"),
            std::string::npos);
}

TEST_F(ModelsTest, MiniMaxNormsAllHeadsAtOnceAndTurnsARotaryDim) {
  const auto outputs = outputs_of(make(mixture("MiniMaxM2ForCausalLM", R"(, "rotary_dim": 12)")));
  EXPECT_EQ(outputs.at("model.layers.0.block_sparse_moe.experts.3.gate_up_proj"), 128);
  EXPECT_EQ(outputs.count("model.layers.2.self_attn.k_norm"), 1u);
  const auto refusal = [&](const std::string& more) { return make(mixture("MiniMaxM2ForCausalLM", more)).status().message(); };
  EXPECT_NE(refusal(R"(, "rotary_dim": 25)").find("rotary_dim is 25"), std::string::npos);
  EXPECT_NE(refusal(R"(, "scoring_func": "softmax")").find("scoring_func is 'softmax'"), std::string::npos);
  EXPECT_NE(refusal(R"(, "qk_norm_type": "per_head")").find("qk_norm_type is 'per_head'"), std::string::npos);
  EXPECT_NE(refusal(R"(, "use_routing_bias": false)").find("use_routing_bias is false"), std::string::npos);
  EXPECT_NE(refusal(R"(, "shared_intermediate_size": 8)").find("shared_intermediate_size is 8"), std::string::npos);
}

TEST_F(ModelsTest, ErniesExpertsStandBetweenTwoLayers) {
  const auto outputs = outputs_of(make(mixture("Ernie4_5_MoeForCausalLM", R"(, "moe_layer_end_index": 1)")));
  EXPECT_EQ(outputs.count("model.layers.0.mlp.gate") + outputs.count("model.layers.2.mlp.gate"), 0u);
  EXPECT_EQ(outputs.at("model.layers.1.mlp.gate"), 4);
  EXPECT_EQ(outputs.at("model.layers.1.mlp.shared_experts.gate_up_proj"), 64) << "two shared ones where the file says nothing";
  EXPECT_EQ(outputs.count("lm_head"), 1u);
  const auto refused = make(mixture("Ernie4_5_MoeForCausalLM", R"(, "use_bias": true)")).status();
  EXPECT_NE(refused.message().find("use_bias is true"), std::string::npos) << refused.message();
}

std::string llama4(const std::string& more = "") {
  return mixture("Llama4ForCausalLM", R"(, "intermediate_size_mlp": 96, "attn_temperature_tuning": false)" + more);
}

TEST_F(ModelsTest, Llama4HasExpertsInSomeLayersAndNormsWithoutWeights) {
  const auto outputs = outputs_of(make(llama4(R"(, "interleave_moe_layer_step": 2)")));
  EXPECT_EQ(outputs.at("model.layers.0.feed_forward.gate_up_proj"), 96);
  EXPECT_EQ(outputs.at("model.layers.1.feed_forward.experts.3.gate_up_proj"), 256);
  EXPECT_EQ(outputs.at("model.layers.1.feed_forward.shared_expert.gate_up_proj"), 128);
  EXPECT_EQ(outputs.at("model.layers.1.feed_forward.router"), 4);
  EXPECT_EQ(outputs.count("model.layers.0.self_attn.q_norm"), 0u) << "nothing that an adapter could change";
  const auto named = outputs_of(make(llama4(R"(, "moe_layers": [0])")));
  EXPECT_EQ(named.count("model.layers.0.feed_forward.router"), 1u);
  EXPECT_EQ(named.count("model.layers.1.feed_forward.router"), 0u);
}

TEST_F(ModelsTest, Llama4IsServedWhereChunksAndTemperatureChangeNothing) {
  const auto refusal = [&](const std::string& more) { return make(llama4(more)).status().message(); };
  EXPECT_EQ(refusal(R"(, "attention_chunk_size": 256)"), "");
  EXPECT_EQ(refusal(R"(, "attention_chunk_size": null)"), "");
  EXPECT_NE(refusal(R"(, "attention_chunk_size": 255)").find("give --max-model-len 255"), std::string::npos);
  const auto tuned = [&](int floor) {
    return make(mixture("Llama4ForCausalLM", fmt::format(R"(, "floor_scale": {})", floor))).status().message();
  };
  EXPECT_EQ(tuned(257), "");
  EXPECT_NE(tuned(256).find("give --max-model-len 255"), std::string::npos);
  EXPECT_NE(refusal(R"(, "no_rope_layers": [1, 0])").find("2 entries for 3 layers"), std::string::npos);
  EXPECT_NE(refusal(R"(, "layer_types": ["sliding_attention"])").find("'sliding_attention' is not known"), std::string::npos);
}

TEST_F(ModelsTest, SolarOpenHasExpertsInEveryLayer) {
  std::string json = mixture("SolarOpenForCausalLM");
  json.replace(json.find("\"intermediate_size\": 128, "), 26, "");
  const auto outputs = outputs_of(make(json));
  EXPECT_EQ(outputs.at("model.layers.0.mlp.shared_experts.gate_up_proj"), 32);
  EXPECT_EQ(outputs.count("model.layers.0.mlp.gate_up_proj"), 0u);
  const auto refusal = [&](const std::string& more) { return make(mixture("SolarOpenForCausalLM", more)).status().message(); };
  EXPECT_NE(refusal(R"(, "use_qk_norm": true)").find("use_qk_norm is true"), std::string::npos);
  EXPECT_NE(refusal(R"(, "first_k_dense_replace": 1)").find("first_k_dense_replace is 1"), std::string::npos);
}

TEST_F(ModelsTest, ExpertsAreBounded) {
  const auto refusal = [&](std::string json, const std::string& from, const std::string& to) {
    json.replace(json.find(from), from.size(), to);
    return make(json).status().message();
  };
  const std::string fine = mixture("Qwen3MoeForCausalLM");
  EXPECT_NE(refusal(fine, "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 5").find("of 4 experts"), std::string::npos);
  EXPECT_NE(refusal(fine, "\"num_experts\": 4", "\"num_experts\": 0").find("num_experts"), std::string::npos);
  EXPECT_NE(refusal(fine, "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 20000").find("num_hidden_layers"),
            std::string::npos);
  std::string deep = fine;
  deep.replace(deep.find("\"num_hidden_layers\": 3"), 22, "\"num_hidden_layers\": 100");
  EXPECT_NE(refusal(deep, "\"num_experts\": 4", "\"num_experts\": 1000").find("experts in all"), std::string::npos);
}

std::string gpt_oss(const std::string& more = "") {
  return R"({"architectures": ["GptOssForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 100, "max_position_embeddings": 256,
             "num_experts": 3, "num_experts_per_tok": 2, "rope_scaling": null)" +
         more + "}";
}

TEST_F(ModelsTest, GptOssHasSinksAndOneMatrixOfGateAndUpAnExpert) {
  const auto model = make(gpt_oss());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  std::vector<std::string> modules;
  for (const auto* module : (*model)->modules()) {
    if (module->prefix().starts_with("model.layers.1.")) modules.push_back(module->prefix().substr(15));
  }
  EXPECT_EQ(modules, (std::vector<std::string>{"input_layernorm", "self_attn.qkv_proj", "self_attn.sinks", "self_attn.o_proj",
                                               "post_attention_layernorm", "mlp.router", "mlp.experts.0.gate_up_proj",
                                               "mlp.experts.0.down_proj", "mlp.experts.1.gate_up_proj", "mlp.experts.1.down_proj",
                                               "mlp.experts.2.gate_up_proj", "mlp.experts.2.down_proj"}));
}

TEST_F(ModelsTest, WhatGptOssCannotDoIsNamed) {
  const auto refusal = [&](const std::string& config) { return make(config).status().message(); };
  EXPECT_NE(refusal(gpt_oss(R"(, "swiglu_limit": 0)")).find("swiglu_limit"), std::string::npos);
  EXPECT_NE(refusal(gpt_oss(R"(, "swiglu_alpha": -1.0)")).find("swiglu_alpha"), std::string::npos);
  EXPECT_NE(refusal(gpt_oss(R"(, "hidden_act": "gelu_new")")).find("gelu_new"), std::string::npos);
  EXPECT_NE(refusal(gpt_oss(R"(, "layer_types": ["full_attention", "chunked_attention"])")).find("chunked_attention"),
            std::string::npos);
  for (const std::string key : {"head_dim", "num_key_value_heads", "rope_scaling"}) {
    std::string lacking = gpt_oss();
    lacking.replace(lacking.find(key), key.size(), "absent");
    EXPECT_NE(refusal(lacking).find(key + " is missing"), std::string::npos) << key;
  }
}

TEST_F(ModelsTest, AlternatingWindowsAreTheFilesOrThePattern) {
  const auto windows = [&](const std::string& json) { return *read_alternating_windows(config(json), 4, 2, 128); };
  EXPECT_EQ(windows("{}"), (std::vector<int64_t>{128, 0, 128, 0}));
  EXPECT_EQ(windows(R"({"sliding_window": 16})"), (std::vector<int64_t>{16, 0, 16, 0}));
  EXPECT_EQ(windows(R"({"sliding_window": 16, "layer_types": ["full_attention", "full_attention", "full_attention",
                        "sliding_attention"]})"),
            (std::vector<int64_t>{0, 0, 0, 16}));
}

std::string dense(const std::string& family, const std::string& more = "") {
  return R"({"architectures": [")" + family +
         R"(ForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 256)" +
         more + "}";
}

TEST_F(ModelsTest, NormsStandWhereTheFamilyHasThem) {
  const auto norms = [&](const std::string& json) {
    std::vector<std::string> names;
    const auto model = make(json);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    for (const auto* module : (*model)->modules()) {
      const std::string name = module->prefix();
      if (name.starts_with("model.layers.1.") && name.ends_with("norm")) names.push_back(name.substr(15));
    }
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(norms(dense("SmolLM3")), (Names{"input_layernorm", "post_attention_layernorm"}));
  EXPECT_EQ(norms(dense("Olmo2")),
            (Names{"self_attn.q_norm", "self_attn.k_norm", "post_attention_layernorm", "post_feedforward_layernorm"}));
  EXPECT_EQ(norms(dense("Olmo3")), norms(dense("Olmo2")));
  EXPECT_EQ(norms(dense("Exaone4")), norms(dense("Olmo2")));
  EXPECT_EQ(norms(dense("Glm")), (Names{"input_layernorm", "post_attention_layernorm"}));
  EXPECT_EQ(norms(dense("Glm4")),
            (Names{"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"}));
  EXPECT_EQ(norms(dense("HunYuanDenseV1")),
            (Names{"input_layernorm", "self_attn.query_layernorm", "self_attn.key_layernorm", "post_attention_layernorm"}));
  EXPECT_EQ(norms(dense("Cohere2")), (Names{"input_layernorm"}));
}

TEST_F(ModelsTest, DenseFamiliesHaveTheirWindows) {
  const auto windows = [&](const std::string& json) {
    const auto model = make(json);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    std::vector<int64_t> seen;
    for (const auto& shape : (*model)->kv_shapes()) seen.push_back(shape.window);
    return seen;
  };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows(dense("SmolLM3", R"(, "sliding_window": 16)")), (Windows{0, 0, 0, 0}));
  EXPECT_EQ(windows(dense("SmolLM3", R"(, "sliding_window": 16, "use_sliding_window": true)")), (Windows{0, 0, 0, 16}));
  EXPECT_EQ(windows(dense("SmolLM3", R"(, "sliding_window": 16, "use_sliding_window": true, "no_rope_layers": [0, 1, 1, 0, 1])")),
            (Windows{16, 0, 0, 16}));
  EXPECT_EQ(windows(dense("SmolLM3", R"(, "sliding_window": 16, "use_sliding_window": true, "no_rope_layer_interval": 2)")),
            (Windows{0, 16, 0, 16}));
  EXPECT_EQ(windows(dense("Olmo2", R"(, "sliding_window": 16)")), (Windows{0, 0, 0, 0}));
  EXPECT_EQ(windows(dense("Olmo3", R"(, "sliding_window": 16)")), (Windows{16, 16, 16, 0}));
  EXPECT_EQ(windows(dense("Cohere2", R"(, "sliding_window": 16, "sliding_window_pattern": 2)")), (Windows{16, 0, 16, 0}));
  EXPECT_EQ(windows(dense("Exaone4", R"(, "sliding_window": 16)")), (Windows{16, 16, 16, 0}));
  EXPECT_EQ(windows(dense("Exaone4", R"(, "sliding_window": 16, "sliding_window_pattern": "LG")")), (Windows{16, 0, 16, 0}));
  EXPECT_EQ(windows(dense("Exaone4", R"(, "sliding_window": 16, "sliding_window_pattern": "LLG")")), (Windows{16, 16, 0, 0}));
  EXPECT_EQ(windows(dense("Exaone4", R"(, "sliding_window": null, "sliding_window_pattern": null)")), (Windows{0, 0, 0, 0}));
  EXPECT_EQ(windows(dense("Ministral")), (Windows{4096, 4096, 4096, 4096}));
}

TEST_F(ModelsTest, CommandRNormsEachHeadByAWeightOfItsOwn) {
  for (const bool normed : {false, true}) {
    const auto model = make(dense("Cohere", fmt::format(R"(, "use_qk_norm": {})", normed)));
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    std::map<std::string, std::pair<int64_t, int64_t>> norms;
    for (const auto& target : (*model)->lora_targets()) {
      if (target.name.starts_with("model.layers.0.self_attn.") && target.kind == lora::TargetKind::kNorm)
        norms[target.name.substr(25)] = {target.heads, target.in};
    }
    using Norms = std::map<std::string, std::pair<int64_t, int64_t>>;
    EXPECT_EQ(norms, normed ? (Norms{{"k_norm", {2, 32}}, {"q_norm", {4, 64}}}) : Norms());
  }
}

TEST_F(ModelsTest, WhatDenseFamiliesCannotDoIsNamed) {
  const auto refusal = [&](const std::string& family, const std::string& more) {
    return make(dense(family, more)).status().message();
  };
  for (const auto& [family, more, words] : std::vector<std::array<const char*, 3>>{
           {"SmolLM3", R"(, "no_rope_layers": [1, 1])", "no_rope_layers has 2 entries for 4 layers"},
           {"SmolLM3", R"(, "no_rope_layers": [1, 1, 2, 0])", "no_rope_layers"},
           {"SmolLM3", R"(, "no_rope_layer_interval": 0)", "no_rope_layer_interval is 0"},
           {"Olmo3", R"(, "sliding_window": null)", "sliding_window is null"},
           {"Olmo3", R"(, "layer_types": ["full_attention"])", "1 entries for 4 layers"},
           {"Exaone4", R"(, "sliding_window": 8, "sliding_window_pattern": "LX")", "sliding_window_pattern is 'LX'"},
           {"Granite", R"(, "logits_scaling": 0)", "logits_scaling is 0"},
           {"Granite", R"(, "residual_multiplier": "a")", "residual_multiplier"},
           {"Ministral3", "", "rope_scaling is missing"},
           {"Ministral3", R"(, "rope_scaling": {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 8})",
            "rope_scaling.llama_4_scaling_beta is missing"}}) {
    EXPECT_NE(refusal(family, more).find(words), std::string::npos) << family << more << ": " << refusal(family, more);
  }
}

TEST_F(ModelsTest, RopeFieldsArriveAsTheyAreWritten) {
  const auto rope = read_rope_config(config(R"({"rope_theta": 500000.0, "partial_rotary_factor": 0.5, "rope_scaling": {
      "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 64}})"),
                                     32, 128, 512);
  ASSERT_TRUE(rope.ok()) << rope.status().to_string();
  EXPECT_EQ(rope->theta, 500000.0);
  EXPECT_EQ(rope->rotary_dim, 16);
  EXPECT_EQ(rope->scaling, kernels::RotaryScaling::kLlama3);
  EXPECT_EQ(rope->original_max_position, 64);
  EXPECT_EQ(rope->max_positions, 128);
}

TEST_F(ModelsTest, LongropeIsStretchedByItsPositions) {
  const auto rope =
      read_rope_config(config(R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1], "long_factor": [2, 3],
      "original_max_position_embeddings": 64}})"),
                       4, 128, 512);
  ASSERT_TRUE(rope.ok()) << rope.status().to_string();
  EXPECT_EQ(rope->factor, 8.0);
  EXPECT_EQ(rope->original_max_position, 64);
}

}  // namespace
}  // namespace choral::models
