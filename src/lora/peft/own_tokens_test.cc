// Adapters that bring tokens of their own: every form in which files hold the rows, and what is refused.
#include "lora/peft/loading_test.h"

namespace choral::lora {
namespace {

constexpr int64_t kOwn = 3, kAll = kVocabulary + kOwn;
inline constexpr char kEmbed[] = "model.embed_tokens";
inline constexpr char kSaved[] = R"(,"modules_to_save":["embed_tokens","lm_head"])";

// q and v with an embedding and a head of these rows under PEFT's names.
AdapterBuilder resized(int64_t embedding_rows, int64_t head_rows, std::string_view tail = ".weight") {
  AdapterBuilder builder;
  builder.query_and_value();
  if (embedding_rows > 0) builder.add(fmt::format("base_model.model.{}{}", kEmbed, tail), {embedding_rows, kHidden});
  if (head_rows > 0) builder.add(fmt::format("base_model.model.lm_head{}", tail), {head_rows, kHidden}, "F32", 500);
  return builder;
}

float first_of(const AdapterTensor& tensor) {
  float value;
  std::memcpy(&value, tensor.view.data, sizeof value);
  return value;
}

TEST(OwnTokens, FollowTheBasesInAResizedEmbeddingAndHead) {
  for (const char* config : {kSaved, ""}) {  // named by modules_to_save, or saved with save_embedding_layers
    const LoRAModel model = accepted(resized(kAll, kAll), config_json(config));
    EXPECT_EQ(model.extra_vocab_size(), kOwn);
    EXPECT_EQ(model.may_be_the_base(kEmbed), *config == '\0');
    for (const char* name : {kEmbed, "lm_head"}) {
      EXPECT_EQ(model.replaced_weights().at(name).view.shape, Shape({kVocabulary, kHidden}));
      EXPECT_EQ(model.embeddings_tensors().at(name).view.shape, Shape({kOwn, kHidden}));
      EXPECT_EQ(model.embeddings_tensors().at(name).view.data,
                model.replaced_weights().at(name).view.data + kVocabulary * kHidden * 4);
    }
  }
}

// PEFT saves a resized layer that modules_to_save names under three names.
TEST(OwnTokens, MayStandInTheFileUnderTwoNames) {
  AdapterBuilder builder = resized(kAll, kAll);
  for (const std::string name : {"model.embed_tokens", "lm_head"}) {
    builder.add("base_model.model." + name + ".modules_to_save.weight", {kAll, kHidden}, "F32", name == "lm_head" ? 500 : 1);
    builder.add("base_model.model." + name + ".original_module.weight", {kAll, kHidden}, "F32", 7);
  }
  EXPECT_EQ(first_of(accepted(builder, config_json(kSaved)).embeddings_tensors().at(kEmbed)),
            0.01F * (1 + kVocabulary * kHidden));
  builder.at("model.embed_tokens.modules_to_save.weight").values[5] += 1;
  EXPECT_THAT(refusal(builder, config_json(kSaved)), HasSubstr("a file holds one adapter"));
}

TEST(OwnTokens, OfLayersThatAPairAdapts) {
  AdapterBuilder builder = resized(kAll, kAll, ".base_layer.weight");
  builder.add("base_model.model.model.embed_tokens.lora_embedding_A", {2, kAll})
      .add("base_model.model.model.embed_tokens.lora_embedding_B", {kHidden, 2})
      .pair("lm_head", 2, kHidden, kAll);
  const auto config = config_json("", R"(["q_proj","v_proj","embed_tokens","lm_head"])");
  const LoRAModel model = accepted(builder, config);
  EXPECT_EQ(model.extra_vocab_size(), kOwn);
  EXPECT_EQ(model.get_lora("lm_head")->lora_b.view.shape, Shape({kAll, 2}));
  EXPECT_EQ(model.frozen_copies().at("lm_head").view.shape, Shape({kVocabulary, kHidden}));
  AdapterBuilder without = builder;
  without.remove("lm_head.base_layer.weight");
  EXPECT_THAT(refusal(without, config),
              AllOf(HasSubstr("'lm_head'"), HasSubstr("own token 10 has no row"), HasSubstr("save_embedding_layers=True")));
  AdapterBuilder other = resized(kAll, kAll + 1, ".base_layer.weight");
  other.pair("lm_head", 2, kHidden, kAll);
  EXPECT_THAT(refusal(other, config_json("", R"(["q_proj","v_proj","lm_head"])")),
              HasSubstr("the low-rank pair has 3 tokens beyond the base's vocabulary, the rows 4"));
}

TEST(OwnTokens, AsTrainedTokens) {
  AdapterBuilder builder = resized(kAll, kAll, ".token_adapter.base_layer.weight");
  builder.add("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", {2, kHidden});
  const auto with = [](std::string_view ids) { return config_json(fmt::format(R"(,"trainable_token_indices":{})", ids)); };
  EXPECT_EQ(accepted(builder, with("[12,4]")).extra_vocab_size(), kOwn);
  EXPECT_THAT(refusal(builder, with("[14,4]")), HasSubstr("own token 13 has no row"));

  // Without a copy of the layer all of them are trained; the head has none.
  AdapterBuilder alone;
  alone.query_and_value().add("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", {2, kHidden});
  const LoRAModel model = accepted(alone, with("[11,10]"));
  EXPECT_EQ(model.extra_vocab_size(), 2);
  EXPECT_THAT(model.notes(), Contains(HasSubstr("read in prompts and never written")));
  EXPECT_THAT(refusal(alone, with("[11,1]")), HasSubstr("own token 10 has no row"));
  EXPECT_THAT(refusal(alone, with("[10,266]")), AllOf(HasSubstr("goes 257 tokens beyond"), HasSubstr("256 are allowed")));
  EXPECT_THAT(refusal(alone, with("[10,2000000000]")), HasSubstr("no more than 65536 are served"));
}

TEST(OwnTokens, OfATiedHeadAreTheEmbeddings) {
  auto targets = testing::small_targets();
  targets.back().tied_to = kEmbed;
  const auto load = [&](const AdapterBuilder& builder, std::string_view config) {
    const TempDir folder;
    testing::write_file(folder.path() / "adapter_config.json", config);
    testing::write_file(folder.path() / "adapter_model.safetensors", builder.safetensors());
    return LoRAModel::from_local_checkpoint(folder.path(), *PEFTHelper::from_local_dir(folder.path()), targets);
  };
  const auto saved = load(resized(kAll, 0), config_json());
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  EXPECT_EQ(saved->embeddings_tensors().at("lm_head").view.data, saved->embeddings_tensors().at(kEmbed).view.data);
  AdapterBuilder trained;  // saved once more with the head
  trained.query_and_value();
  for (const char* module : {kEmbed, "lm_head"}) {
    trained.add(fmt::format("base_model.model.{}.token_adapter.trainable_tokens_delta", module), {2, kHidden});
  }
  const auto twice = load(trained, config_json(R"(,"trainable_token_indices":[4,10])"));
  ASSERT_TRUE(twice.ok()) << twice.status().message();
  EXPECT_EQ(twice->extra_vocab_size(), 1);
  // modules_to_save unties: the head's rows are in nobody's file.
  const auto untied = load(resized(kAll, 0), config_json(R"(,"modules_to_save":["embed_tokens"])"));
  ASSERT_TRUE(untied.ok()) << untied.status().message();
  EXPECT_FALSE(untied->embeddings_tensors().contains("lm_head"));
  EXPECT_THAT(untied->notes(), Contains(HasSubstr("'lm_head' has no rows for the adapter's 3 tokens")));
}

TEST(OwnTokens, InAFileOfTheirOwn) {
  const TempDir folder;
  const auto load = [&](const AdapterBuilder& more, bool read_shapes = false) -> Result<LoRAModel> {
    testing::write_file(folder.path() / "adapter_config.json", config_json());
    testing::write_file(folder.path() / "adapter_model.safetensors", AdapterBuilder().query_and_value().safetensors());
    testing::write_file(folder.path() / "new_embeddings.safetensors", more.safetensors());
    CHORAL_TRY(const auto file, read_shapes ? read_adapter_shapes(folder.path()) : read_adapter_file(folder.path()));
    return LoRAModel::from_adapter_file(file, *PEFTHelper::from_local_dir(folder.path()), testing::small_targets());
  };
  AdapterBuilder rows;
  rows.add("input_embeddings", {kOwn, kHidden}).add("output_embeddings", {kOwn, kHidden}, "F32", 50);
  for (const bool shapes : {false, true}) {
    const auto model = load(rows, shapes);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->extra_vocab_size(), kOwn);
    EXPECT_TRUE(model->replaced_weights().empty());
  }
  EXPECT_EQ(first_of(load(rows)->embeddings_tensors().at("lm_head")), 0.5F);
  const auto said = [&](AdapterBuilder more) { return load(more).status().message(); };
  EXPECT_THAT(said(AdapterBuilder().add("input_embeddings", {kOwn, kHidden + 1})),
              HasSubstr("'input_embeddings' has shape [3, 9]"));
  EXPECT_THAT(said(AdapterBuilder().add("input_embeddings", {kOwn})), HasSubstr("'input_embeddings' has shape [3]"));
  EXPECT_THAT(said(AdapterBuilder().add("input_embeddings", {257, kHidden})), HasSubstr("--lora-extra-vocab-size 257"));
  EXPECT_THAT(said(AdapterBuilder().add("output_embeddings", {kOwn, kHidden})),
              HasSubstr("0 in the embedding and 3 in the head"));
  EXPECT_THAT(said(AdapterBuilder().add("something", {kOwn, kHidden})), HasSubstr("'something' is neither input_embeddings nor"));
  AdapterBuilder infinite = rows;
  infinite.tensors[1].values[4] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(said(infinite), HasSubstr("'output_embeddings' has a NaN or an infinity (element 4)"));
}

TEST(OwnTokens, AreRefusedByTheLimit) {
  LoRALoadOptions options;
  options.config.lora_extra_vocab_size = kOwn - 1;
  EXPECT_THAT(refusal(resized(kAll, kAll), config_json(kSaved), options),
              AllOf(HasSubstr("goes 3 tokens beyond the base's vocabulary of 10; 2 are allowed (lora_extra_vocab_size)"),
                    HasSubstr("start with --lora-extra-vocab-size 3")));
  options.config.lora_extra_vocab_size = kOwn;
  EXPECT_EQ(refusal(resized(kAll, kAll), config_json(kSaved), options), "accepted");
}

TEST(OwnTokens, AreRefusedWhereTheyCannotBeServed) {
  EXPECT_THAT(refusal(resized(kAll, kAll + 1), config_json(kSaved)), HasSubstr("3 in the embedding and 4 in the head 'lm_head'"));
  EXPECT_THAT(refusal(resized(kAll, kAll), config_json(std::string(kSaved) + R"(,"alora_invocation_tokens":[3])")),
              HasSubstr("cannot be activated by tokens"));
  EXPECT_THAT(refusal(resized(kVocabulary - 1, kVocabulary), config_json(kSaved)), HasSubstr("has shape [9, 8]"));
}

}  // namespace
}  // namespace choral::lora
