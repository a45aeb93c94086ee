// What stands on a family's layers: a vocabulary's head, one of classes, or none; and who sees whom below it.
#include <gtest/gtest.h>

#include "models/registry.h"
#include "platform/cpu_context_test.h"

namespace choral::models {
namespace {

class ModelOutputsTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Model>> make(const std::string& name, const std::string& more = "") {
    const std::string json = R"({"architectures": [")" + name + R"("], "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
        "max_position_embeddings": 256)" +
                             more + "}";
    return make_model(*io::ConfigMap::parse_json(json, "config.json"), options_);
  }

  platform::testing::CpuContext cpu_;
  std::unique_ptr<quant::QuantConfig> quant_config_ = *quant::make_quant_config({}, "auto");
  platform::CustomOpConfig custom_ops_;
  platform::LayerOverrides overrides_;
  ModelOptions options_{cpu_.session(), *quant_config_, custom_ops_, overrides_, 0};
};

TEST_F(ModelOutputsTest, WhoSeesWhatComesAfterGivesNoText) {
  const auto status = make("LlamaForCausalLM", R"(, "is_causal": false)").status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("config.json: is_causal"), std::string::npos) << status.message();
  EXPECT_FALSE((*make("LlamaForCausalLM", R"(, "is_causal": true)"))->sees_later());
  EXPECT_TRUE((*make("LlamaModel", R"(, "is_causal": false)"))->sees_later());
}

TEST_F(ModelOutputsTest, AFamilysClassesDifferByWhatStandsOnTheLayers) {
  const auto head = [this](const std::string& name, const std::string& more = "") { return (*make(name, more))->head(); };
  EXPECT_EQ(head("LlamaForCausalLM").kind, HeadKind::kTokens);
  EXPECT_EQ(head("LlamaModel").kind, HeadKind::kNone);
  const auto two = head("LlamaForSequenceClassification");
  EXPECT_EQ(two.kind, HeadKind::kClasses);
  EXPECT_EQ(two.classes, 2) << "what transformers takes for granted";
  EXPECT_EQ(head("LlamaForSequenceClassification", R"(, "num_labels": 1)").classes, 1);
  EXPECT_EQ(head("LlamaForSequenceClassification", R"(, "id2label": {"0": "a", "1": "b", "2": "c"})").classes, 3);
  EXPECT_EQ(make("LlamaForSequenceClassification", R"(, "num_labels": 0)").status().code(), Code::kCorrupt);
  EXPECT_EQ(make("LlamaForTokenClassification").status().code(), Code::kUnsupported);
  EXPECT_EQ(make("Model").status().code(), Code::kUnsupported);
  std::vector<std::string> heads;
  const auto classifier = make("LlamaForSequenceClassification");
  for (const auto* module : (*classifier)->modules()) {
    if (!module->prefix().starts_with("model.")) heads.push_back(module->prefix());
  }
  EXPECT_EQ(heads, std::vector<std::string>{"score"});
}

TEST_F(ModelOutputsTest, LayersBehindThePoolingFitEachOther) {
  const auto model = make("LlamaModel", R"(, "embedding_layers": [{"in_features": 64, "out_features": 32},
                                                                          {"in_features": 32, "out_features": 8, "bias": true}])");
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ((*model)->embedding_layers().size(64), 8);
  const auto unfit = make("LlamaModel", R"(, "embedding_layers": [{"in_features": 32, "out_features": 8}])");
  EXPECT_EQ(unfit.status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace choral::models
