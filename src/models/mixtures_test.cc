// What the configurations of single families of mixtures build, and what they are refused for.
#include <gmock/gmock.h>

#include "models/decoder.h"
#include "models/models_test.h"

namespace choral::models {
namespace {

using ::testing::HasSubstr;

std::string of_class(const std::string& architecture, const std::string& more = "") {
  return R"({"architectures": [")" + architecture + R"("], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 256)" +
         more + "}";
}

class HunyuanMoe : public ModelsTest {
 protected:
  static constexpr const char* kSizes = R"(, "num_experts": 4, "num_experts_per_tok": [2, 2])";
  Result<std::unique_ptr<Model>> make_with(const std::string& more) {
    return make(of_class("HunYuanMoEV1ForCausalLM", kSizes + more));
  }
};

TEST_F(HunyuanMoe, HasExpertsBesideAnMlpInEveryLayer) {
  const auto outputs = outputs_of(make_with(R"(, "moe_intermediate_size": [128, 128], "num_shared_expert": [1, 1])"));
  for (const char* layer : {"model.layers.0", "model.layers.1"}) {
    EXPECT_EQ(outputs.at(fmt::format("{}.mlp.gate.wg", layer)), 4);
    EXPECT_EQ(outputs.at(fmt::format("{}.mlp.experts.3.gate_up_proj", layer)), 128);
    EXPECT_EQ(outputs.at(fmt::format("{}.mlp.shared_mlp.gate_up_proj", layer)), 128);
    EXPECT_EQ(outputs.count(fmt::format("{}.self_attn.query_layernorm", layer)), 1u);
  }
}

TEST_F(HunyuanMoe, AHeadsWidthHasTwoNames) {
  EXPECT_EQ((*make_with(R"(, "attention_head_dim": 24)"))->kv_shapes()[0].key_dim, 24);
  EXPECT_EQ((*make_with(R"(, "attention_head_dim": 24, "head_dim": 32)"))->kv_shapes()[0].key_dim, 32);
}

TEST_F(HunyuanMoe, WhatItsFilesCouldSayBesidesIsRefused) {
  const auto refusal = [&](const std::string& more) { return make_with(more).status().message(); };
  EXPECT_THAT(refusal(R"(, "moe_intermediate_size": [128, 64])"), HasSubstr("moe_intermediate_size differs from layer to layer"));
  EXPECT_THAT(refusal(R"(, "moe_intermediate_size": 64)"), HasSubstr("moe_intermediate_size is 64; 128 is supported"));
  EXPECT_THAT(refusal(R"(, "moe_intermediate_size": [])"), HasSubstr("moe_intermediate_size is empty"));
  EXPECT_THAT(refusal(R"(, "num_shared_expert": 2)"), HasSubstr("num_shared_expert is 2; 1 is supported"));
  EXPECT_THAT(refusal(R"(, "moe_layer_num_skipped": 1)"), HasSubstr("moe_layer_num_skipped is 1"));
  EXPECT_THAT(refusal(R"(, "routed_scaling_factor": 2.5)"), HasSubstr("routed_scaling_factor is 2.5"));
  for (const char* field : {"use_cla", "group_limited_greedy", "mlp_bias"}) {
    EXPECT_THAT(refusal(fmt::format(R"(, "{}": true)", field)), HasSubstr(fmt::format("{} is true", field)));
  }
  for (const char* field : {"use_qk_norm", "norm_topk_prob", "use_mixed_mlp_moe"}) {
    EXPECT_THAT(refusal(fmt::format(R"(, "{}": false)", field)), HasSubstr(fmt::format("{} is false", field)));
  }
}

class PhiMoe : public ModelsTest {
 protected:
  Result<std::unique_ptr<Model>> make_with(const std::string& more, const std::string& name = "PhiMoE") {
    return make(of_class(name + "ForCausalLM", R"(, "num_experts": 4, "num_experts_per_tok": 2)" + more));
  }
  const DecoderSpec& spec_of(const std::string& more) {
    made_ = *make_with(more);
    return *std::get<const DecoderSpec*>(made_->spec());
  }
  std::unique_ptr<Model> made_;
};

TEST_F(PhiMoe, IsMixtralWithBiasesUnderTwoNames) {
  for (const char* name : {"PhiMoE", "Phimoe"}) {
    const auto outputs = outputs_of(make_with("", name));
    EXPECT_EQ(outputs.at("model.layers.1.block_sparse_moe.gate"), 4);
    EXPECT_EQ(outputs.at("model.layers.1.block_sparse_moe.experts.3.gate_up_proj"), 128);
  }
  for (const bool biased : {false, true}) {
    const auto& spec = spec_of(fmt::format(R"(, "lm_head_bias": {0}, "attention_bias": {0})", biased));
    EXPECT_EQ(std::tuple(spec.head_bias, spec.qkv_bias, spec.output_bias), std::tuple(biased, biased, biased));
    EXPECT_TRUE(spec.norm_biases && spec.centred_norms);
  }
}

TEST_F(PhiMoe, ItsMixerHasAJitter) {
  EXPECT_FLOAT_EQ(spec_of("").moe->gating.jitter, 0.01F);
  EXPECT_FLOAT_EQ(spec_of(R"(, "router_jitter_noise": 0.25)").moe->gating.jitter, 0.25F);
}

constexpr const char* kMscales = R"(, "rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 64,
    "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [2, 2, 2, 2, 2, 2, 2, 2], "short_mscale": 1.25, "long_mscale": 1.5})";

TEST_F(PhiMoe, EachListOfFrequenciesHasAFactor) {
  const auto rotary = spec_of(kMscales).rotary;
  EXPECT_EQ(rotary.attention_factor, 1.25);
  EXPECT_EQ(rotary.long_attention_factor, 1.5);
}

TEST_F(PhiMoe, WhatItCannotBeIsRefused) {
  const auto refusal = [&](const std::string& more) { return make_with(more).status().message(); };
  EXPECT_THAT(refusal(R"(, "lm_head_bias": true, "tie_word_embeddings": true)"), HasSubstr("lm_head_bias is true, and the head"));
  EXPECT_THAT(refusal(R"(, "router_jitter_noise": -1)"), HasSubstr("router_jitter_noise is -1"));
  std::string without = kMscales;
  without.replace(without.find(R"(, "long_mscale": 1.5)"), 20, "");
  EXPECT_THAT(refusal(without), HasSubstr("rope_scaling.long_mscale is missing"));
  const auto three = make(of_class("PhiMoEForCausalLM", R"(, "num_experts": 4, "num_experts_per_tok": 3)"));
  EXPECT_THAT(three.status().message(), HasSubstr("num_experts_per_tok is 3; a sparse mixer has 2"));
}

}  // namespace
}  // namespace choral::models
