// What GGUF files of single families of mixtures say, and what wrong ones of them are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "io/checkpoint.h"
#include "io/gguf_family_test.h"

namespace choral::io::family_test {
namespace {

using ::testing::HasSubstr;

TEST(GgufHunyuanMoe, ExpertsAreAsWideAsTheMlpBesideThem) {
  GgufSpec spec = base("hunyuan-moe");
  put(spec, GgufSpec::kv_u32("hunyuan-moe.expert_count", 4));
  put(spec, GgufSpec::kv_u32("hunyuan-moe.expert_used_count", 2));
  put(spec, GgufSpec::kv_u32("hunyuan-moe.expert_feed_forward_length", 64));
  EXPECT_EQ(field(spec, "architectures"), R"(["HunYuanMoEV1ForCausalLM"])");
  EXPECT_EQ(field(spec, "intermediate_size"), "64");
  EXPECT_EQ(field(spec, "num_experts_per_tok"), "2");
  put(spec, GgufSpec::kv_u32("hunyuan-moe.expert_shared_feed_forward_length", 128));
  EXPECT_THAT(field(spec, "intermediate_size"), HasSubstr("hunyuan-moe.expert_shared_feed_forward_length is 128"));
}

TEST(GgufHunyuanMoe, ItsTensorsHaveHunyuansNames) {
  GgufSpec spec = base("hunyuan-moe");
  put(spec, GgufSpec::kv_u32("hunyuan-moe.expert_count", 2));
  put(spec, GgufSpec::kv_u32("hunyuan-moe.expert_used_count", 2));
  spec.tensors = {{"blk.0.ffn_gate_inp.weight", {3, 2}, 0, floats(6)},
                  {"blk.0.ffn_up_shexp.weight", {3, 2}, 0, floats(6)},
                  {"blk.0.ffn_down_exps.weight", {2, 3, 2}, 0, floats(12)},
                  {"blk.0.attn_k_norm.weight", {4}, 0, floats(4)}};
  with_file(spec, [](const auto& path) {
    const auto checkpoint = *Checkpoint::open(path);
    for (const char* name : {"gate.wg", "shared_mlp.up_proj", "experts.1.down_proj"}) {
      EXPECT_TRUE(checkpoint->contains(fmt::format("model.layers.0.mlp.{}.weight", name))) << name;
    }
    EXPECT_TRUE(checkpoint->contains("model.layers.0.self_attn.key_layernorm.weight"));
  });
}

// As llama.cpp writes Mistral 4's: an expert's gate, then its up.
TEST(GgufExperts, GateAndUpAreHalvesOfOneTensor) {
  GgufSpec spec = base("qwen3moe");
  put(spec, GgufSpec::kv_u32("qwen3moe.expert_count", 2));
  put(spec, GgufSpec::kv_u32("qwen3moe.expert_used_count", 2));
  spec.tensors = {{"blk.0.ffn_gate_up_exps.weight", {3, 4, 2}, 0, floats(24)}};  // two experts of four rows of three
  with_file(spec, [](const auto& path) {
    const auto checkpoint = *Checkpoint::open(path);
    for (const int expert : {0, 1}) {
      for (const auto& [name, first] : {std::pair("gate_proj", 1), std::pair("up_proj", 7)}) {
        const auto half = checkpoint->find(fmt::format("model.layers.0.mlp.experts.{}.{}.weight", expert, name));
        ASSERT_TRUE(half.ok()) << half.status().to_string();
        EXPECT_EQ(half->view.shape, (Shape{2, 3}));
        for (int i = 0; i < 6; ++i) {
          float value;
          std::memcpy(&value, half->view.data + i * sizeof value, sizeof value);
          EXPECT_EQ(value, static_cast<float>(12 * expert + first + i)) << expert << name << i;
        }
      }
    }
    EXPECT_FALSE(checkpoint->contains("model.layers.0.mlp.experts.2.up_proj.weight"));
  });
  spec.tensors = {{"blk.0.ffn_gate_up_exps.weight", {3, 5, 2}, 0, floats(30)}};
  with_file(spec, [](const auto& path) {
    EXPECT_THAT(Checkpoint::open(path).status().message(), HasSubstr("an expert's rows are its gate's and as many of its up"));
  });
  // Beside the parts a whole would be the same twice.
  spec.tensors = {{"blk.0.ffn_gate_up_exps.weight", {3, 4, 2}, 0, floats(24)},
                  {"blk.0.ffn_up_exps.weight", {3, 2, 2}, 0, floats(12)}};
  with_file(spec, [](const auto& path) {
    EXPECT_THAT(Checkpoint::open(path).status().message(),
                HasSubstr("two tensors are 'model.layers.0.mlp.experts.0.up_proj.weight'"));
  });
}

TEST(GgufDeepseek, ItsIndexerHasAPlaceInItsAttention) {
  GgufSpec spec = base("deepseek32");
  spec.tensors = {{"blk.1.indexer.attn_q_b.weight", {3, 2}, 0, floats(6)}, {"blk.1.indexer.k_norm.bias", {4}, 0, floats(4)}};
  with_file(spec, [](const auto& path) {
    const auto checkpoint = *Checkpoint::open(path);
    EXPECT_TRUE(checkpoint->contains("model.layers.1.self_attn.indexer.wq_b.weight"));
    EXPECT_TRUE(checkpoint->contains("model.layers.1.self_attn.indexer.k_norm.bias"));
  });
}

GgufSpec phimoe(uint32_t context) {
  GgufSpec spec = base("phimoe");
  put(spec, GgufSpec::kv_u32("phimoe.context_length", context));
  put(spec, GgufSpec::kv_u32("phimoe.expert_count", 4));
  put(spec, GgufSpec::kv_u32("phimoe.expert_used_count", 2));
  put(spec, GgufSpec::kv_u32("phimoe.rope.scaling.original_context_length", 4096));
  put(spec, GgufSpec::kv_f32("phimoe.rope.scaling.attn_factor", 1.1902381F));
  for (const char* length : {"long", "short"})
    spec.tensors.push_back({fmt::format("rope_factors_{}.weight", length), {8}, 0, floats(8)});
  return spec;
}

TEST(GgufPhiMoe, TheLongModelsFactorIsItsOwn) {
  EXPECT_THAT(field(phimoe(131072), "rope_scaling"), HasSubstr(R"("attention_factor": 1.243163121016122)"));
  EXPECT_THAT(field(phimoe(65536), "rope_scaling"), HasSubstr(R"("attention_factor": 1.1902381)"));
  GgufSpec spec = phimoe(131072);
  put(spec, GgufSpec::kv_f32("phimoe.rope.scaling.attn_factor", 1.5F));
  EXPECT_THAT(field(spec, "rope_scaling"), HasSubstr(R"("attention_factor": 1.5)")) << "a file that knows better";
}

TEST(GgufPhiMoe, TheHeadsBiasIsWhereItsTensorIs) {
  GgufSpec spec = phimoe(128);
  EXPECT_EQ(field(spec, "lm_head_bias"), "false");
  EXPECT_EQ(field(spec, "architectures"), R"(["PhiMoEForCausalLM"])");
  spec.tensors.push_back({"output.bias", {10}, 0, floats(10)});
  EXPECT_EQ(field(spec, "lm_head_bias"), "true");
}

}  // namespace
}  // namespace choral::io::family_test
