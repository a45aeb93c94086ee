// What GGUF files of Gemma's models say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/checkpoint.h"
#include "io/gguf_family_test.h"

namespace choral::io::family_test {
namespace {

using choral::testing::TempDir;
using ::testing::HasSubstr;

GgufSpec gemma4() {
  GgufSpec spec = base("gemma4");
  for (const auto& [key, value] : std::vector<std::pair<const char*, uint32_t>>{{"block_count", 4},
                                                                                {"attention.key_length", 32},
                                                                                {"attention.value_length", 32},
                                                                                {"attention.key_length_swa", 16},
                                                                                {"attention.value_length_swa", 16},
                                                                                {"attention.shared_kv_layers", 2},
                                                                                {"attention.sliding_window", 8},
                                                                                {"embedding_length_per_layer_input", 8}}) {
    put(spec, GgufSpec::kv_u32(std::string("gemma4.") + key, value));
  }
  put(spec, array_of("gemma4.attention.sliding_window_pattern", kBool, {1, 0, 1, 0}));
  put(spec, array_of("gemma4.feed_forward_length", kU32, {64, 64, 128, 128}));
  put(spec, array_of("gemma4.attention.head_count_kv", kU32, {2, 1, 2, 1}));
  spec.tensors.push_back({"blk.1.attn_k.weight", {32, 32}, 0, floats(1024)});
  return spec;
}

TEST(GgufGemma4, LayersDifferAsTheFileSays) {
  GgufSpec spec = gemma4();
  EXPECT_EQ(field(spec, "layer_types"), R"(["sliding_attention", "full_attention", "sliding_attention", "full_attention"])");
  EXPECT_EQ(field(spec, "per_layer_config"),
            R"({"1": {"head_dim": 32, "num_key_value_heads": 1}, "3": {"head_dim": 32, "num_key_value_heads": 1}})");
  EXPECT_EQ(field(spec, "head_dim"), "16");
  EXPECT_EQ(field(spec, "num_key_value_heads"), "2");
  EXPECT_EQ(field(spec, "intermediate_size"), "64");
  EXPECT_EQ(field(spec, "use_double_wide_mlp"), "true");
  EXPECT_EQ(field(spec, "num_kv_shared_layers"), "2");
  EXPECT_EQ(field(spec, "hidden_size_per_layer_input"), "8");
  EXPECT_EQ(field(spec, "attention_k_eq_v"), "true") << "layer 1 has keys and no values";
  EXPECT_EQ(field(spec, "enable_moe_block"), "false");
  spec.tensors.push_back({"blk.1.attn_v.weight", {32, 32}, 0, floats(1024)});
  EXPECT_EQ(field(spec, "attention_k_eq_v"), "false");
  put(spec, GgufSpec::kv_u32("gemma4.feed_forward_length", 64));
  EXPECT_EQ(field(spec, "use_double_wide_mlp"), "false");
}

TEST(GgufGemma4, WhatDoesNotFitIsNamed) {
  const auto refused = [](const std::string& entry) {
    GgufSpec spec = gemma4();
    put(spec, entry);
    return field(spec, "head_dim");
  };
  EXPECT_THAT(refused(array_of("gemma4.feed_forward_length", kU32, {64, 96, 128, 128})), HasSubstr("layer 1 has 96"));
  EXPECT_THAT(refused(array_of("gemma4.feed_forward_length", kU32, {64, 64})), HasSubstr("2 numbers for 4 layers"));
  EXPECT_THAT(refused(array_of("gemma4.attention.sliding_window_pattern", kBool, {1, 0})), HasSubstr("each of 4 layers"));
  EXPECT_THAT(refused(GgufSpec::kv_u32("gemma4.attention.sliding_window_pattern", 2)), HasSubstr("each of 4 layers"));
  EXPECT_THAT(refused(array_of("gemma4.attention.sliding_window_pattern", kU32, {7, 0, 1, 0})), HasSubstr("no truth value"));
  EXPECT_THAT(refused(GgufSpec::kv_u32("gemma4.attention.value_length_swa", 8)),
              HasSubstr("value_length_swa is 8, of keys of 16"));
  EXPECT_THAT(refused(GgufSpec::kv_u32("gemma4.rope.dimension_count", 16)), HasSubstr("dimension_count is 16, of keys of 32"));
  EXPECT_THAT(refused(GgufSpec::kv_u32("gemma4.attention.shared_kv_layers", 4)), HasSubstr("shared_kv_layers"));
}

TEST(GgufGemmaEmbedding, SeesBothWaysAndHasLayersBehindItsPooling) {
  GgufSpec spec = base("gemma-embedding");
  put(spec, GgufSpec::kv_u32("gemma-embedding.pooling_type", 1));
  spec.tensors.push_back({"dense_2.weight", {32, 64}, 0, std::string(32 * 64 * 4, 0)});
  spec.tensors.push_back({"dense_3.weight", {64, 16}, 0, std::string(64 * 16 * 4, 0)});
  const TempDir folder;
  const auto path = folder.write("model.gguf", spec.build());
  const auto config = load_model_config(path);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->get_strings("architectures")->front(), "Gemma3TextModel");
  EXPECT_TRUE(*config->get_bool_or("use_bidirectional_attention", false));
  const auto layers = config->get_maps("embedding_layers");
  ASSERT_EQ(layers->size(), 2U);
  EXPECT_EQ(*layers->at(0).get_int("out_features"), 64);
  EXPECT_EQ(*layers->at(1).get_int("in_features"), 64);
  EXPECT_EQ(*layers->at(1).get_int("out_features"), 16);
  const auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_TRUE((*checkpoint)->contains("embedding_layers.1.linear.weight"));
}

}  // namespace
}  // namespace choral::io::family_test
