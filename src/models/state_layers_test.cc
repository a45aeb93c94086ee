// Families some of whose layers keep a state and no keys: what their configs build, and what they are refused for.
#include <array>

#include "models/models_test.h"

namespace choral::models {
namespace {

std::string delta_nets(const std::string& architecture, const std::string& more = "") {
  return R"({"architectures": [")" + architecture + R"("], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 256,
             "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 8, "linear_value_head_dim": 16)" +
         more + "}";
}

TEST_F(ModelsTest, ThreeOfFourLayersKeepAStateAndNoKeys) {
  const auto model = make(delta_nets("Qwen3_5ForCausalLM"));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto kv = (*model)->kv_shapes();
  ASSERT_EQ(kv.size(), 2u);
  EXPECT_EQ(kv[0].key_dim, 256) << "the class's head_dim";
  const auto states = (*model)->state_shapes();
  ASSERT_EQ(states.size(), 6u);
  EXPECT_EQ(states[0].tail_floats(), 3 * (2 * 2 * 8 + 6 * 16));
  EXPECT_EQ(states[0].floats(), states[0].tail_floats() + 6 * 8 * 16);
  EXPECT_EQ((*make(delta_nets("Qwen3_5ForCausalLM", R"(, "full_attention_interval": 2)")))->state_shapes().size(), 4u);
}

TEST_F(ModelsTest, DeltaNetsOfMixturesHaveTheNamesOfTheirFamily) {
  const auto prefixes = [&](const std::string& architecture) {
    const auto model = make(delta_nets(architecture, R"(, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                           "shared_expert_intermediate_size": 32)"));
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    std::string all;
    for (const auto& target : (*model)->lora_targets()) {
      for (const auto& member : target.members) all += member.name + "\n";
    }
    return all;
  };
  const std::string next = prefixes("Qwen3NextForCausalLM"), moe = prefixes("Qwen3_5MoeForCausalLM");
  for (const char* name : {"0.linear_attn.in_proj_qkvz", "0.linear_attn.in_proj_ba", "0.linear_attn.out_proj"}) {
    EXPECT_NE(next.find(name), std::string::npos) << name;
  }
  for (const char* name : {"0.linear_attn.in_proj_qkv\n", "0.linear_attn.in_proj_z\n", "0.linear_attn.in_proj_a\n",
                           "0.linear_attn.in_proj_b\n", "0.mlp.shared_expert.gate_proj", "0.mlp.shared_expert_gate"}) {
    EXPECT_NE(moe.find(name), std::string::npos) << name;
  }
  for (const auto& all : {next, moe}) {
    EXPECT_EQ(all.find("conv1d"), std::string::npos) << "no adapter changes a convolution";
  }
}

TEST_F(ModelsTest, WhatDeltaNetsCannotDoIsNamed) {
  const auto message = [&](const std::string& more) { return make(delta_nets("Qwen3_5ForCausalLM", more)).status().message(); };
  EXPECT_NE(message(R"(, "linear_conv_kernel_dim": 17)").find("linear_conv_kernel_dim"), std::string::npos);
  EXPECT_NE(message(R"(, "hidden_act": "gelu_pytorch_tanh")").find("silu"), std::string::npos);
  EXPECT_NE(message(R"(, "layer_types": ["linear_attention"])").find("layer_types has 1 entries"), std::string::npos);
  EXPECT_NE(message(R"(, "full_attention_interval": 9)").find("full_attention"), std::string::npos);
  std::string odd = delta_nets("Qwen3_5ForCausalLM");
  odd.replace(odd.find("\"linear_num_key_heads\": 2"), 25, "\"linear_num_key_heads\": 4");
  EXPECT_NE(make(odd).status().message().find("linear_num_value_heads"), std::string::npos);
}

std::string granite_hybrid(const std::string& more = "") {
  return R"({"architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 256,
             "shared_intermediate_size": 48, "mamba_n_groups": 2, "mamba_n_heads": 8, "mamba_d_state": 24,
             "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"])" +
         more + "}";
}

TEST_F(ModelsTest, Granite4sMambaLayersKeepAStateAndNoKeys) {
  const auto model = make(granite_hybrid());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ((*model)->kv_shapes().size(), 1u);
  const auto states = (*model)->state_shapes();
  ASSERT_EQ(states.size(), 3u);
  EXPECT_EQ(states[0].tail_floats(), 3 * (128 + 2 * 2 * 24));
  EXPECT_EQ(states[0].floats(), states[0].tail_floats() + 8 * 24 * 16);
  const auto outputs = outputs_of(make(granite_hybrid()));
  EXPECT_EQ(outputs.at("model.layers.0.mamba.in_proj"), 128 + (128 + 2 * 2 * 24) + 8);
  EXPECT_EQ(outputs.at("model.layers.2.mamba.out_proj"), 64);
  EXPECT_EQ(outputs.at("model.layers.3.shared_mlp.input_linear"), 96);
  EXPECT_EQ(outputs.at("model.layers.3.shared_mlp.output_linear"), 64);
  EXPECT_EQ(outputs.count("model.layers.0.mamba.conv1d"), 0u) << "no adapter changes a convolution";
  const auto mixture = outputs_of(make(granite_hybrid(R"(, "num_experts": 4, "num_experts_per_tok": 2)")));
  EXPECT_EQ(mixture.at("model.layers.1.block_sparse_moe.experts.3.gate_up_proj"), 192);
  EXPECT_EQ(mixture.at("model.layers.1.shared_mlp.input_linear"), 96);
}

TEST_F(ModelsTest, Granite4MayHaveAttentionAlone) {
  std::string json = granite_hybrid(R"(, "mamba_n_heads": 7, "position_embedding_type": "rope")");
  for (size_t at; (at = json.find("linear_attention")) != json.npos;) json.replace(at, 16, "full_attention");
  const size_t first = json.find("\"mamba_n_heads\": 8, ");
  const auto model = make(json.erase(first, 20));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_TRUE((*model)->state_shapes().empty());
  EXPECT_EQ((*model)->kv_shapes().size(), 4u);
}

TEST_F(ModelsTest, WhatMambaLayersCannotDoIsNamed) {
  const auto message = [&](const std::string& more) { return make(granite_hybrid(more)).status().message(); };
  for (const auto& [more, named] :
       {std::pair(R"("mamba_d_conv": 17)", "mamba_d_conv"),
        std::pair(R"("mamba_d_head": 15)", "8 heads of 15 are not mamba_expand times hidden_size, 128"),
        std::pair(R"("mamba_d_head": "much")", "mamba_d_head"), std::pair(R"("hidden_act": "gelu")", "silu"),
        std::pair(R"("mamba_expand": 64, "mamba_d_head": 1000000)", "mamba_d_head"),
        std::pair(R"("position_embedding_type": "alibi")", "'alibi'; known: nope, rope"),
        std::pair(R"("time_step_limit": [1])", "two numbers are wanted"),
        std::pair(R"("time_step_limit": [1, 0.5])", "the first is more than the second"),
        std::pair(R"("time_step_limit": [-1, 0.5])", "-1 is no number of 0 or more"),
        std::pair(R"("time_step_limit": [0, {"__float__": "NaN"}])", "is no number of 0 or more")}) {
    EXPECT_NE(message(std::string(", ") + more).find(named), std::string::npos) << message(std::string(", ") + more);
  }
  EXPECT_EQ(message(R"(, "mamba_d_head": "auto", "time_step_limit": [0, {"__float__": "Infinity"}])"), "");
  std::string odd = granite_hybrid();
  odd.replace(odd.find("\"mamba_n_groups\": 2"), 19, "\"mamba_n_groups\": 3");
  EXPECT_NE(make(odd).status().message().find("no multiple of mamba_n_groups (3)"), std::string::npos);
  std::string large = granite_hybrid();
  large.replace(large.find("\"mamba_d_state\": 24"), 19, "\"mamba_d_state\": 65536")
      .replace(large.find("\"mamba_n_groups\": 2"), 19, "\"mamba_n_groups\": 8");
  EXPECT_NE(make(large).status().message().find("1048704 channels; 1048576 are the most"), std::string::npos);
  for (std::string types : {R"("mamba", "full_attention", "full_attention", "full_attention")",
                            R"("linear_attention", "linear_attention", "linear_attention", "linear_attention")"}) {
    std::string other = granite_hybrid();
    const size_t at = other.find("[\"linear_attention");
    EXPECT_NE(make(other.replace(at + 1, other.find(']', at) - at - 1, types)).status().message().find("layer_types"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace choral::models
