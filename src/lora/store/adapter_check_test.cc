#include "lora/store/adapter_check.h"

#include "lora/peft/loading_test.h"

namespace choral::lora {
namespace {

using ::testing::IsEmpty;
using testing::kLayers;

AdapterReport check(const AdapterBuilder& builder, std::string_view config, const AdapterCheckOptions& options = {}) {
  const TempDir folder;
  folder.write("adapter_config.json", config);
  folder.write("adapter_model.safetensors", builder.safetensors());
  return check_adapter(folder.path(), options);
}

TEST(AdapterCheck, DescribesAnAdapterWithAndWithoutItsModel) {
  AdapterBuilder builder;
  builder.query_and_value().add("base_model.model.lm_head.weight", {kVocabulary, kHidden});
  const std::string config =
      config_json(R"(,"use_rslora":true,"modules_to_save":["lm_head"],"base_model_name_or_path":"org/Tiny","lora_dropout":0.1)");
  const auto targets = testing::small_targets();
  AdapterCheckOptions options;
  for (const bool with_model : {false, true}) {
    if (with_model) options = {.targets = targets, .base_names = {"/models/tiny/"}};
    const AdapterReport report = check(builder, config, options);
    EXPECT_TRUE(report.usable()) << ::testing::PrintToString(report.problems);
    EXPECT_EQ(report.format, "safetensors");
    EXPECT_EQ(report.tensors, 9u);
    EXPECT_EQ(report.modules, 4u);
    EXPECT_EQ(report.replaced, 1u);
    EXPECT_THAT(report.kinds, ElementsAre("LoRA", "rsLoRA", "modules_to_save"));
    EXPECT_THAT(report.ranks, ElementsAre(std::pair<const int64_t, size_t>(2, 4)));
    EXPECT_EQ(report.base_model, "org/Tiny");
    EXPECT_EQ(report.base_match, with_model ? BaseMatch::kSame : BaseMatch::kUnknown);
    EXPECT_THAT(report.ignored, Contains(HasSubstr("lora_dropout")));
    EXPECT_THAT(report.non_finite, IsEmpty());
    EXPECT_FALSE(report.zero_effect);
    EXPECT_GT(report.file_bytes, static_cast<uint64_t>(report.tensor_bytes));
    EXPECT_EQ(report.digest.has_value(), with_model);
  }
  options.base_names = {"/models/other/"};
  EXPECT_EQ(check(builder, config, options).base_match, BaseMatch::kDifferent);
  EXPECT_TRUE(check(builder, config, options).usable());
  options.strict = true;
  EXPECT_EQ(check(builder, config, options).code, Code::kInvalidArgument);
  EXPECT_THAT(check(builder, config, options).problems, ElementsAre(AllOf(HasSubstr("--strict"), HasSubstr("'org/Tiny'"))));
}

TEST(AdapterCheck, GgufRowsAreReadAsTheModelHasThem) {
  using io::testing::GgufSpec;
  AdapterBuilder builder;
  for (int64_t i = 0; i < kLayers; ++i) builder.pair(fmt::format("model.layers.{}.self_attn.q_proj", i), 2, kHidden, kHidden);
  GgufSpec spec;
  spec.metadata = {GgufSpec::kv_string("general.architecture", "llama"), GgufSpec::kv_string("general.type", "adapter"),
                   GgufSpec::kv_string("adapter.type", "lora"), GgufSpec::kv_f32("adapter.lora.alpha", 4.0F)};
  for (int64_t i = 0; i < kLayers; ++i) {
    for (const char part : {'a', 'b'}) {
      auto tensor = builder.at(fmt::format("model.layers.{}.self_attn.q_proj.lora_{}.weight", i, part == 'a' ? 'A' : 'B'));
      if (part == 'b') {
        // Heads of four rows: 0 2 1 3.
        for (const size_t row : {1u, 5u}) {
          for (size_t c = 0; c < 2; ++c) std::swap(tensor.values[row * 2 + c], tensor.values[(row + 1) * 2 + c]);
        }
      }
      spec.tensors.push_back({fmt::format("blk.{}.attn_q.weight.lora_{}", i, part),
                              {static_cast<uint64_t>(tensor.shape[1]), static_cast<uint64_t>(tensor.shape[0])},
                              0,
                              AdapterBuilder::bytes(tensor)});
    }
  }
  const TempDir folder;
  const std::filesystem::path path = folder.write("adapter.gguf", spec.build());
  AdapterReport report = check_adapter(path);
  EXPECT_TRUE(report.usable()) << ::testing::PrintToString(report.problems);
  EXPECT_EQ(report.format, "gguf");
  EXPECT_EQ(report.base_architecture, "llama");
  EXPECT_EQ(report.modules, 2u);
  EXPECT_EQ(report.smallest_scaling, 2.0F);
  EXPECT_FALSE(report.digest);

  const auto targets = testing::small_targets();
  const AdapterReport peft = check(builder, config_json("", R"(["q_proj"])"), {.targets = targets});
  report = check_adapter(path, {.targets = targets, .head_dim = 4});
  EXPECT_TRUE(report.usable()) << ::testing::PrintToString(report.problems);
  EXPECT_EQ(report.digest, peft.digest);
  EXPECT_NE(check_adapter(path, {.targets = targets, .head_dim = 8}).digest, peft.digest);
  EXPECT_TRUE(check_adapter(path, {.targets = targets, .head_dim = 4, .base_class = "LlamaForCausalLM"}).usable());
  report = check_adapter(path, {.targets = targets, .head_dim = 4, .base_class = "Qwen3ForCausalLM"});
  EXPECT_THAT(report.problems, Contains(HasSubstr("the adapter is for a model of the architecture llama")));
  report = check_adapter(path, {.targets = targets, .head_dim = 3});
  EXPECT_EQ(report.code, Code::kInvalidArgument);
  EXPECT_THAT(report.problems, Contains(HasSubstr("no heads of 3")));
}

TEST(AdapterCheck, SeesAdaptersWithoutEffect) {
  AdapterBuilder builder;
  builder.query_and_value();
  for (auto& tensor : builder.tensors) {
    if (tensor.name.find("lora_B") != std::string::npos) std::fill(tensor.values.begin(), tensor.values.end(), -0.0F);
  }
  AdapterReport report = check(builder, config_json());
  EXPECT_TRUE(report.usable());
  EXPECT_EQ(report.zero_modules, 4u);
  EXPECT_TRUE(report.zero_effect);
  builder.tensors[1].values[3] = 1.0F;
  report = check(builder, config_json());
  EXPECT_EQ(report.zero_modules, 3u);
  EXPECT_FALSE(report.zero_effect);
}

TEST(AdapterCheck, ListsWhatIsWrong) {
  AdapterBuilder builder;
  builder.query_and_value();
  builder.tensors[0].values[0] = std::numeric_limits<float>::quiet_NaN();
  builder.tensors[3].name = "loose";
  AdapterReport report = check(builder, config_json());
  EXPECT_FALSE(report.usable());
  EXPECT_THAT(report.non_finite, ElementsAre("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));
  EXPECT_THAT(report.problems,
              AllOf(Contains(HasSubstr("'loose'")), Contains(HasSubstr("a NaN")), Contains(HasSubstr("no lora_B"))));

  report = check(builder, config_json(R"(,"use_qalora":true,"init_lora_weights":"pissa")"));
  EXPECT_THAT(report.problems, AllOf(Contains(HasSubstr("use_qalora")), Contains(HasSubstr("init_lora_weights"))));
  EXPECT_EQ(report.tensors, 8u);  // the file is described all the same

  const TempDir folder;
  report = check_adapter(folder.path());
  EXPECT_EQ(report.problems.size(), 2u);
  EXPECT_THAT(report.problems, Contains(HasSubstr("adapter_config.json")));
  builder = AdapterBuilder().query_and_value().pair("model.layers.0.mlp.experts.1.up_proj", 2, kHidden, 4);
  EXPECT_THAT(check(builder, config_json()).problems, Contains(HasSubstr("leaves 'model.layers.0.mlp.experts.1.up_proj' out")));
}

TEST(AdapterCheck, EmbeddingsTokensAndNormsWithoutAModel) {
  AdapterBuilder builder;
  builder.add("base_model.model.model.embed_tokens.lora_embedding_A", {2, kVocabulary})
      .add("base_model.model.model.embed_tokens.lora_embedding_B", {kHidden, 2})
      .add("base_model.model.model.embed_tokens.base_layer.weight", {kVocabulary, kHidden})
      .add("base_model.model.model.norm.weight", {kHidden})
      .pair("lm_head", 2, kHidden, kVocabulary);
  const AdapterReport report =
      check(builder, config_json(R"(,"modules_to_save":["model.norm"])", R"(["embed_tokens","lm_head"])"));
  EXPECT_TRUE(report.usable()) << ::testing::PrintToString(report.problems);
  EXPECT_THAT(report.kinds, ElementsAre("LoRA", "embedding", "head", "modules_to_save"));
  AdapterBuilder tokens;
  tokens.query_and_value().add("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", {2, kHidden});
  EXPECT_THAT(check(tokens, config_json(R"(,"trainable_token_indices":[7,3])")).kinds, Contains("trainable tokens"));
  const auto of_both = [&](std::string_view head_ids) {
    return check(tokens,
                 config_json(fmt::format(R"(,"trainable_token_indices":{{"embed_tokens":[7,3],"lm_head":{}}})", head_ids)));
  };
  EXPECT_TRUE(of_both("[7,3]").usable()) << ::testing::PrintToString(of_both("[7,3]").problems);
  EXPECT_THAT(of_both("[3,7]").problems, Contains(HasSubstr("names 'lm_head', whose rows")));
}

}  // namespace
}  // namespace choral::lora
