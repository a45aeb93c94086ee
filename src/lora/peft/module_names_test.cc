#include "lora/peft/module_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace choral::lora {
namespace {

TEST(ModuleNames, EverySpelling) {
  struct Case {
    const char* tail;
    TensorPart part;
  };
  const Case cases[] = {{"lora_A.weight", TensorPart::kLoraA},
                        {"lora_A.default.weight", TensorPart::kLoraA},
                        {"lora_B.weight", TensorPart::kLoraB},
                        {"lora_B.my-adapter.weight", TensorPart::kLoraB},
                        {"lora_B.bias", TensorPart::kLoraBias},
                        {"lora_B.default.bias", TensorPart::kLoraBias},
                        {"lora_embedding_A", TensorPart::kEmbeddingA},
                        {"lora_embedding_A.default", TensorPart::kEmbeddingA},
                        {"lora_embedding_B", TensorPart::kEmbeddingB},
                        {"lora_magnitude_vector", TensorPart::kMagnitude},
                        {"lora_magnitude_vector.weight", TensorPart::kMagnitude},
                        {"lora_magnitude_vector.default", TensorPart::kMagnitude},
                        {"lora_magnitude_vector.default.weight", TensorPart::kMagnitude},
                        {"base_layer.weight", TensorPart::kBaseWeight},
                        {"base_layer.bias", TensorPart::kBaseBias},
                        {"token_adapter.base_layer.weight", TensorPart::kBaseWeight},
                        {"token_adapter.base_layer.bias", TensorPart::kBaseBias},
                        {"modules_to_save.default.weight", TensorPart::kWeight},
                        {"modules_to_save.default.bias", TensorPart::kBias},
                        {"original_module.weight", TensorPart::kBaseWeight},
                        {"original_module.bias", TensorPart::kIdleBias},
                        {"weight", TensorPart::kWeight},
                        {"bias", TensorPart::kBias},
                        {"e_score_correction_bias", TensorPart::kChoiceBias},
                        {"modules_to_save.default.e_score_correction_bias", TensorPart::kChoiceBias},
                        {"token_adapter.trainable_tokens_delta", TensorPart::kTokenRows},
                        {"token_adapter.trainable_tokens_delta.default", TensorPart::kTokenRows}};
  for (const auto& [tail, part] : cases) {
    for (const char* prefix : {"", "base_model.model."}) {
      const auto name = parse_tensor_name(std::string(prefix) + "model.layers.3.self_attn.q_proj." + tail);
      ASSERT_TRUE(name) << tail;
      EXPECT_EQ(name->module, "model.layers.3.self_attn.q_proj") << tail;
      EXPECT_EQ(name->part, part) << tail;
    }
  }
  EXPECT_EQ(part_tail(TensorPart::kLoraA), "lora_A.weight");
  EXPECT_EQ(part_tail(TensorPart::kWeight), "weight");
}

TEST(ModuleNames, OfTransformers5) {
  EXPECT_EQ(renamed_in_5("model.layers.3.block_sparse_moe.experts.11.w1"), "model.layers.3.mlp.experts.11.gate_proj");
  EXPECT_EQ(renamed_in_5("model.layers.3.block_sparse_moe.experts.0.w3"), "model.layers.3.mlp.experts.0.up_proj");
  EXPECT_EQ(renamed_in_5("model.layers.3.block_sparse_moe.experts.0.w2"), "model.layers.3.mlp.experts.0.down_proj");
  EXPECT_EQ(renamed_in_5("model.layers.3.block_sparse_moe.experts.0.gate_up_proj"), "model.layers.3.mlp.experts.0.gate_up_proj");
  EXPECT_EQ(renamed_in_5("model.layers.3.block_sparse_moe.gate"), "model.layers.3.mlp.gate");
  EXPECT_EQ(renamed_in_5("model.layers.3.mlp.w1"), "model.layers.3.mlp.w1");
}

TEST(ModuleNames, NoNames) {
  for (const char* name : {"", "weight", ".weight", "lora_A.weight", "base_model.model.weight", "model.q_proj",
                           "model.q_proj.lora_A", "model.q_proj..weight", "q_proj.lora_A..weight"}) {
    const auto parsed = parse_tensor_name(name);
    EXPECT_TRUE(!parsed || parsed->part == TensorPart::kWeight) << name;
  }
  EXPECT_FALSE(parse_tensor_name("model.q_proj.lora_A"));
  EXPECT_FALSE(parse_tensor_name("lora_embedding_A"));
}

}  // namespace
}  // namespace choral::lora
