// What GGUF files of single families of mixtures say, and what wrong ones of them are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace choral::io::family_test
