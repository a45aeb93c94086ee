// The checks between a file and a model: what is refused, and in which words.
#include "lora/peft/lora_loader.h"

#include "lora/peft/loading_test.h"

namespace choral::lora {
namespace {

TEST(LoRALoader, SavedModulesReplaceTheBases) {
  AdapterBuilder builder;
  builder.query_and_value()
      .add("base_model.model.model.norm.weight", {kHidden})
      .add("base_model.model.lm_head.modules_to_save.default.weight", {kVocabulary, kHidden}, "BF16")
      .add("base_model.model.lm_head.original_module.weight", {kVocabulary, kHidden});
  const LoRAModel model = accepted(builder, config_json(R"(,"modules_to_save":["model.norm","lm_head"])"));
  EXPECT_EQ(model.replaced_weights().size(), 2u);
  EXPECT_EQ(model.replaced_weights().at("lm_head").view.dtype, DType::kBF16);
  EXPECT_EQ(model.replaced_weights().at("model.norm").view.shape, Shape({kHidden}));

  // PEFT loads a plain weight also when the config does not name it.
  EXPECT_THAT(accepted(builder, config_json(R"(,"modules_to_save":["lm_head"])")).notes(),
              Contains(HasSubstr("not named by modules_to_save")));
  // "norm" is the end of every norm's name, as for PEFT.
  EXPECT_THAT(refusal(builder, config_json(R"(,"modules_to_save":["norm","lm_head"])")),
              HasSubstr("'model.layers.0.input_layernorm.weight' is not in the file"));
  EXPECT_THAT(refusal(builder, config_json(R"(,"modules_to_save":["score"])")), HasSubstr("'score', which is no module"));
  EXPECT_THAT(refusal(builder, config_json(R"(,"modules_to_save":["lm_heda"])")), HasSubstr("nearest: 'lm_head'"));
  builder.at("model.norm.weight").shape = {2, 4};
  EXPECT_THAT(refusal(builder, config_json(R"(,"modules_to_save":["model.norm","lm_head"])")), HasSubstr("[2, 4]"));
}

// So PEFT writes them with bias = "all": the bias in use under two names, and the idle one of the module that it stands in for.
TEST(LoRALoader, ASavedModulesBiasMayStandInTheFileThreeTimes) {
  AdapterBuilder builder;
  const std::string key = "base_model.model.model.layers.0.self_attn.k_proj.";
  builder.query_and_value().add(key + "weight", {kKeys, kHidden});
  for (const char* tail : {"bias", "modules_to_save.bias"}) builder.add(key + tail, {kKeys}, "F32", 3);
  builder.add(key + "original_module.bias", {kKeys}, "F32", 7);
  const auto config = config_json(R"(,"bias":"all","modules_to_save":["layers.0.self_attn.k_proj"])");
  const LoRAModel model = accepted(builder, config);
  EXPECT_EQ(model.replaced_biases().size(), 1u);
  EXPECT_THAT(model.notes(), Contains(HasSubstr("original_module.bias': of the module that modules_to_save stands in for")));
  builder.at(key + "modules_to_save.bias").values[1] += 1;
  EXPECT_THAT(refusal(builder, config), HasSubstr("are both the bias of one module"));
}

// PEFT writes the name for each family whose experts are parameters, Hunyuan's too, whose router is a module within `gate`.
TEST(LoRALoader, ARouterWithinAGateMayBeNamedInVain) {
  AdapterBuilder builder;
  builder.query_and_value();
  const auto config = config_json(R"(,"target_parameters":["gate.weight"])");
  EXPECT_THAT(refusal(builder, config), HasSubstr("target_parameters names 'gate.weight'"));
  auto targets = testing::small_targets();
  targets.push_back(testing::linear("model.layers.0.mlp.gate.wg", {{"model.layers.0.mlp.gate.wg", 4}}, kHidden));
  EXPECT_THAT(accepted(builder, config, {}, targets).notes(), Contains(HasSubstr("PEFT leaves it out too")));
  EXPECT_THAT(refusal(builder, config_json(R"(,"target_parameters":["gate.wieght"])"), {}, targets), HasSubstr("gate.wieght"));
}

TEST(LoRALoader, ASavedBlockIsAllItsLayers) {
  AdapterBuilder builder;
  builder.query_and_value();
  for (const char* layer : {"base_model.model.model.layers.0.mlp.", "base_model.model.model.layers.1.mlp."}) {
    builder.add(std::string(layer) + "gate_proj.weight", {kInner, kHidden})
        .add(std::string(layer) + "up_proj.weight", {kInner, kHidden});
    builder.add(std::string(layer) + "down_proj.weight", {kHidden, kInner});
  }
  EXPECT_EQ(accepted(builder, config_json(R"(,"modules_to_save":["mlp"])")).replaced_weights().size(), 6u);
  builder.remove("model.layers.1.mlp.up_proj.weight");
  EXPECT_THAT(refusal(builder, config_json(R"(,"modules_to_save":["mlp"])")), HasSubstr("model.layers.1.mlp.up_proj.weight"));
  // A saved module is never adapted too: the file may hold no pair of it, and none is missed.
  builder.add("base_model.model.model.layers.1.mlp.up_proj.weight", {kInner, kHidden});
  EXPECT_EQ(refusal(builder, config_json(R"(,"modules_to_save":["mlp"])", R"(["q_proj","v_proj","up_proj"])")), "accepted");
}

TEST(LoRALoader, TrainableTokens) {
  AdapterBuilder builder;
  builder.query_and_value().add("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", {3, kHidden});
  const auto with = [](std::string_view ids) { return config_json(fmt::format(R"(,"trainable_token_indices":{})", ids)); };
  for (const char* ids : {"[9,0,4]", R"({"embed_tokens":[9,0,4]})", R"({"model.embed_tokens":[9,0,4]})"}) {
    const LoRAModel model = accepted(builder, with(ids));
    ASSERT_EQ(model.trainable_tokens().size(), 1u) << ids;
    EXPECT_EQ(model.trainable_tokens()[0].module, "model.embed_tokens");
    EXPECT_THAT(model.trainable_tokens()[0].token_ids, ElementsAre(9, 0, 4));
  }
  EXPECT_THAT(refusal(builder, with("[9,0]")), HasSubstr("has shape [3, 8]"));
  EXPECT_THAT(refusal(builder, with("[9,0,0]")), HasSubstr("names a token twice"));
  EXPECT_THAT(refusal(builder, with("[300,0,1]")),
              HasSubstr("'embed_tokens' goes 291 tokens beyond the base's vocabulary of 10"));
  EXPECT_THAT(refusal(builder, config_json()), HasSubstr("trainable_token_indices does not say"));
  EXPECT_THAT(refusal(AdapterBuilder().query_and_value(), with("[1]")), HasSubstr("are not in the file"));
}

// What PEFT does with each of these was tried with PEFT 0.18.1 and 0.21.2.
TEST(LoRALoader, TrainableTokensOfATiedHead) {
  auto targets = testing::small_targets();
  targets.back().tied_to = "model.embed_tokens";
  const auto load = [&](AdapterBuilder builder, std::string_view more, std::string_view modules = R"(["q_proj","v_proj"])") {
    builder.query_and_value();
    const TempDir folder;
    testing::write_file(folder.path() / "adapter_config.json", config_json(more, modules));
    testing::write_file(folder.path() / "adapter_model.safetensors", builder.safetensors());
    return LoRAModel::from_local_checkpoint(folder.path(), *PEFTHelper::from_local_dir(folder.path()), targets);
  };
  const auto embedding_rows = AdapterBuilder().add("model.embed_tokens.token_adapter.trainable_tokens_delta", {2, kHidden});
  const auto head_rows = AdapterBuilder().add("lm_head.token_adapter.trainable_tokens_delta", {2, kHidden});
  AdapterBuilder both = embedding_rows;
  both.add("lm_head.token_adapter.trainable_tokens_delta", {2, kHidden});
  const auto module_of = [&](const Result<LoRAModel>& model, size_t target) -> std::string {
    if (!model.ok()) return model.status().message();
    const TrainableTokens* tokens = model->trainable_tokens_of(targets[target]);
    return tokens == nullptr ? "none" : tokens->module;
  };
  const size_t embedding = 0, head = targets.size() - 1;

  const auto of_head = load(head_rows, R"(,"trainable_token_indices":{"lm_head":[4,2]})");
  EXPECT_EQ(module_of(of_head, embedding), "none");
  EXPECT_EQ(module_of(of_head, head), "lm_head");
  const auto of_embedding = load(embedding_rows, R"(,"trainable_token_indices":[4,2])");
  EXPECT_EQ(module_of(of_embedding, embedding), "model.embed_tokens");
  EXPECT_EQ(module_of(of_embedding, head), "model.embed_tokens");
  for (const char* head_ids : {"[4,2]", "[2,4]", "[1,5]"}) {
    const auto own = load(both, fmt::format(R"(,"trainable_token_indices":{{"embed_tokens":[4,2],"lm_head":{}}})", head_ids));
    EXPECT_EQ(module_of(own, embedding), "model.embed_tokens") << head_ids;
    EXPECT_EQ(module_of(own, head), "lm_head") << head_ids;
  }
  const auto once = load(embedding_rows, R"(,"trainable_token_indices":{"embed_tokens":[4,2],"lm_head":[4,2]})");
  EXPECT_EQ(module_of(once, head), "model.embed_tokens");
  EXPECT_THAT(module_of(load(embedding_rows, R"(,"trainable_token_indices":{"embed_tokens":[4,2],"lm_head":[2,4]})"), head),
              HasSubstr("names 'lm_head', whose rows"));

  // Nothing else may act on a module with rows of its own. The head that shares them may have a plain pair.
  const auto tokens = R"(,"trainable_token_indices":[4,2])", linear_and_head = R"(["q_proj","v_proj","lm_head"])";
  AdapterBuilder with_head_pair = embedding_rows;
  with_head_pair.pair("lm_head", 2, kHidden, kVocabulary);
  EXPECT_EQ(module_of(load(with_head_pair, tokens, linear_and_head), head), "model.embed_tokens");
  AdapterBuilder with_dora = with_head_pair;
  with_dora.add("lm_head.lora_magnitude_vector", {kVocabulary});
  const auto dora = load(with_dora, fmt::format(R"({},"use_dora":true)", tokens), linear_and_head);
  EXPECT_THAT(dora.status().message(),
              HasSubstr("trainable_token_indices: DoRA of 'lm_head', which is tied to 'model.embed_tokens'"));
  AdapterBuilder with_own_pair = head_rows;
  with_own_pair.pair("lm_head", 2, kHidden, kVocabulary);
  EXPECT_THAT(load(with_own_pair, R"(,"trainable_token_indices":{"lm_head":[4,2]})", linear_and_head).status().message(),
              HasSubstr("trainable_token_indices: 'lm_head' has a low-rank pair as well"));
  AdapterBuilder with_saved_head = embedding_rows;
  with_saved_head.add("lm_head.weight", {kVocabulary, kHidden});
  EXPECT_THAT(load(with_saved_head, fmt::format(R"({},"modules_to_save":["lm_head"])", tokens)).status().message(),
              HasSubstr("'lm_head' has a whole weight (modules_to_save) as well"));
}

// PEFT multiplies by the trained weight and adds no bias, to the other tokens' logits neither.
TEST(LoRALoader, TrainableTokensOfAHeadWithABias) {
  auto targets = testing::small_targets();
  const std::vector<float> bias(kVocabulary, 0.5F);
  targets.back().base_bias = [&bias] { return std::span<const float>(bias); };
  AdapterBuilder builder;
  builder.query_and_value().add("lm_head.token_adapter.trainable_tokens_delta", {2, kHidden});
  EXPECT_THAT(refusal(builder, config_json(R"(,"trainable_token_indices":{"lm_head":[4,2]})"), {}, targets),
              HasSubstr("trainable_token_indices: 'lm_head' has a bias"));
  AdapterBuilder of_embedding;
  of_embedding.query_and_value().add("model.embed_tokens.token_adapter.trainable_tokens_delta", {2, kHidden});
  EXPECT_EQ(refusal(of_embedding, config_json(R"(,"trainable_token_indices":[4,2])"), {}, targets), "accepted");
}

TEST(LoRALoader, AdaptsOnlyWhatTheConfigTargets) {
  AdapterBuilder builder;
  builder.query_and_value();
  EXPECT_THAT(refusal(builder, config_json("", R"(["q_proj"])")), HasSubstr("leaves 'model.layers.0.self_attn.v_proj' out"));
  EXPECT_THAT(refusal(builder, config_json("", R"(["q_proj","v_proj","o_proj"])")),
              AllOf(HasSubstr("2 modules that have no tensors"), HasSubstr("'model.layers.1.self_attn.o_proj'")));
  EXPECT_THAT(refusal(builder, config_json(R"(,"layers_to_transform":[0])")), HasSubstr("layers.1.self_attn.q_proj' out"));
  EXPECT_EQ(refusal(builder, config_json(R"(,"layers_to_transform":[0,1,7])")), "accepted");
  EXPECT_EQ(refusal(builder, config_json("", R"(".*\\.self_attn\\.(q|v)_proj")")), "accepted");
  EXPECT_EQ(refusal(builder, config_json(R"(,"exclude_modules":["k_proj"])", R"(".*\\.self_attn\\.[qkv]_proj")")), "accepted");
  EXPECT_THAT(refusal(builder, config_json("", R"(".*\\.self_attn\\.[qkv]_proj")")), HasSubstr("have no tensors"));

  AdapterBuilder first;
  first.pair(kQuery, 2, kHidden, kHidden);
  EXPECT_THAT(refusal(first, config_json("", R"(["q_proj"])")), HasSubstr("'model.layers.1.self_attn.q_proj'"));
  EXPECT_EQ(refusal(first, config_json(R"(,"layers_to_transform":0)", R"(["q_proj"])")), "accepted");
  EXPECT_EQ(refusal(first, config_json(R"(,"layers_to_transform":[0],"layers_pattern":"layers")", R"(["q_proj"])")), "accepted");
}

TEST(LoRALoader, AllLinearLeavesOutHeadAndEmbedding) {
  AdapterBuilder builder;
  for (const auto& target : testing::small_targets()) {
    if (target.kind != TargetKind::kLinear) continue;
    for (const auto& member : target.members) builder.pair(member.name, 2, target.in, member.out);
  }
  EXPECT_EQ(refusal(builder, config_json("", R"("all-linear")")), "accepted");
  AdapterBuilder head = builder;
  head.pair("lm_head", 2, kHidden, kVocabulary);
  EXPECT_THAT(refusal(head, config_json("", R"("all-linear")")), HasSubstr("leaves 'lm_head' out"));
  builder.remove("model.layers.1.mlp.down_proj.lora_A.weight").remove("model.layers.1.mlp.down_proj.lora_B.weight");
  EXPECT_THAT(refusal(builder, config_json("", R"("all-linear")")), HasSubstr("'model.layers.1.mlp.down_proj'"));
}

TEST(LoRALoader, NamesTensorsThatBelongNowhere) {
  AdapterBuilder builder;
  builder.query_and_value().add("base_model.model.model.layers.0.self_attn.qq_proj.lora_A.weight", {2, kHidden});
  builder.add("base_model.model.visual.blocks.0.weight", {3}).add("loose", {1});
  EXPECT_THAT(refusal(builder, config_json()),
              AllOf(HasSubstr("3 tensors belong to no module"), HasSubstr("qq_proj.lora_A.weight' (nearest: '"),
                    HasSubstr("'base_model.model.visual.blocks.0.weight'"), HasSubstr("'loose'")));
  AdapterBuilder strange;
  strange.add("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight", {2, kHidden})
      .add("base_model.model.transformer.h.0.attn.c_attn.lora_B.weight", {kHidden, 2});
  EXPECT_THAT(refusal(strange, config_json(R"(,"base_model_name_or_path":"gpt2")", R"(["c_attn"])")),
              AllOf(HasSubstr("none of its 2 tensors belongs to this model"), HasSubstr("made for 'gpt2'"),
                    HasSubstr("'model.embed_tokens'")));
  EXPECT_THAT(refusal(AdapterBuilder(), config_json()), HasSubstr("holds no tensor"));
}

TEST(LoRALoader, RefusesHalvesShapesAndDuplicates) {
  const auto broken = [](auto change) {
    AdapterBuilder builder;
    builder.query_and_value();
    change(builder);
    return refusal(builder, config_json());
  };
  const std::string a = std::string(kQuery) + ".lora_A.weight", b = std::string(kQuery) + ".lora_B.weight";
  EXPECT_THAT(broken([&](auto& it) { it.remove(a); }), HasSubstr("q_proj.lora_B.weight' has no lora_A beside it"));
  EXPECT_THAT(broken([&](auto& it) { it.remove(b); }), HasSubstr("q_proj.lora_A.weight' has no lora_B beside it"));
  EXPECT_THAT(broken([&](auto& it) {
                it.at(a).shape = {4, 4};
              }),
              AllOf(HasSubstr("has shape [4, 4]"), HasSubstr("needs [4, 8]"), HasSubstr(kQuery)));
  EXPECT_THAT(broken([&](auto& it) { it.at(a).shape = {kHidden, 2}; }), HasSubstr("has shape [8, 2]"));
  EXPECT_THAT(broken([&](auto& it) { it.at(b).shape = {2, kHidden}; }), HasSubstr("needs [8, 2]"));
  EXPECT_THAT(broken([&](auto& it) { it.at(b).shape = {16}; }), HasSubstr("has shape [16]"));
  EXPECT_THAT(broken([&](auto& it) { it.add(kQuery + std::string(".lora_A.weight"), {2, kHidden}); }), HasSubstr("one adapter"));
  EXPECT_THAT(broken([&](auto& it) {
                it.add(kQuery + std::string(".lora_A.other.weight"), {2, kHidden});
              }),
              HasSubstr("one adapter"));
  EXPECT_THAT(broken([&](auto& it) {
                it.add(kQuery + std::string(".lora_embedding_A"), {2, kHidden});
              }),
              HasSubstr("lora_embedding_B beside it"));
}

TEST(LoRALoader, RefusesNanAndInfinityByName) {
  for (const char* dtype : {"F32", "F16", "BF16"}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()}) {
      AdapterBuilder builder;
      builder.query_and_value();
      for (auto& tensor : builder.tensors) tensor.dtype = dtype;
      builder.tensors.back().values.back() = value;
      EXPECT_THAT(refusal(builder, config_json()),
                  AllOf(HasSubstr("layers.1.self_attn.v_proj.lora_B.weight' has a NaN or an infinity (element 7)")))
          << dtype;
      builder.tensors.back().values.back() = 65504.0F;  // the largest half is a value like any other
      EXPECT_EQ(refusal(builder, config_json()), "accepted");
    }
  }
}

TEST(LoRALoader, RanksAreBoundedByTheServer) {
  LoRALoadOptions options;
  options.config.max_lora_rank = 4;
  AdapterBuilder builder;
  builder.query_and_value(6);
  EXPECT_THAT(refusal(builder, R"({"r":6,"lora_alpha":4,"target_modules":["q_proj","v_proj"]})", options),
              HasSubstr("--max-lora-rank 6"));
}

TEST(LoRALoader, ExpertsThatTheModelDoesNotHaveAreNamed) {
  AdapterBuilder builder;
  builder.query_and_value().pair("model.layers.0.mlp.experts.3.up_proj", 2, kHidden, 4);
  EXPECT_THAT(refusal(builder, config_json()),
              HasSubstr("'base_model.model.model.layers.0.mlp.experts.3.up_proj.lora_A.weight'"));
}

TEST(LoRALoader, AllProblemsComeInOneError) {
  AdapterBuilder builder;
  builder.query_and_value().add("loose", {1});
  builder.at(std::string(kQuery) + ".lora_A.weight").shape = {4, 4};
  builder.remove("model.layers.1.self_attn.v_proj.lora_B.weight");
  EXPECT_THAT(
      refusal(builder, config_json("", R"(["q_proj","v_proj","o_proj"])")),
      AllOf(HasSubstr("4 problems"), HasSubstr("'loose'"), HasSubstr("[4, 4]"), HasSubstr("no lora_B"), HasSubstr("o_proj")));
}

}  // namespace
}  // namespace choral::lora
