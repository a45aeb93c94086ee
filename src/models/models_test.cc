#include <fmt/core.h>
#include <gtest/gtest.h>

#include "models/decoder.h"
#include "models/families.h"
#include "models/registry.h"
#include "models/rope_config.h"
#include "platform/cpu_context_test.h"

namespace choral::models {
namespace {

class ModelsTest : public ::testing::Test {
 protected:
  static io::ConfigMap config(const std::string& json) { return *io::ConfigMap::parse_json(json, "config.json"); }
  Result<std::unique_ptr<Model>> make(const std::string& json) { return make_model(config(json), options_); }

  platform::testing::CpuContext cpu_;
  std::unique_ptr<quant::QuantConfig> quant_config_ = *quant::make_quant_config({}, "auto");
  platform::CustomOpConfig custom_ops_;
  platform::LayerOverrides overrides_;
  ModelOptions options_{cpu_.session(), *quant_config_, custom_ops_, overrides_, 0};
};

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
