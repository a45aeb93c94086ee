#include "lora/peft/lora_model.h"

#include "lora/peft/loading_test.h"

namespace choral::lora {
namespace {

TEST(LoRAModel, HoldsWhatTheFileSays) {
  const LoRAModel model = accepted(AdapterBuilder().query_and_value(), config_json(), {.lora_model_id = 7});
  EXPECT_EQ(model.id(), 7);
  EXPECT_EQ(model.rank(), 2);
  EXPECT_EQ(model.scaling(), 2.0F);
  EXPECT_EQ(model.loras().size(), 4u);
  const LoRALayerWeights* layer = model.get_lora(kQuery);
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(layer->module_name, kQuery);
  EXPECT_EQ(layer->rank, 2);
  EXPECT_EQ(layer->scaling, 2.0F);
  EXPECT_EQ(layer->lora_alpha, 4.0);
  EXPECT_EQ(layer->lora_a.view.shape, Shape({2, kHidden}));
  EXPECT_EQ(layer->lora_b.view.shape, Shape({kHidden, 2}));
  EXPECT_NE(model.get_lora(kQuery), nullptr);
  EXPECT_EQ(model.get_lora("model.layers.0.self_attn.k_proj"), nullptr);
  EXPECT_EQ(model.size_bytes(), 2 * 4 * (2 * 8 + 8 * 2 + 2 * 8 + 4 * 2));
}

TEST(LoRAModel, TensorsOutliveTheFolderAndTheModel) {
  LoRALayerWeights layer;
  { layer = *accepted(AdapterBuilder().query_and_value(), config_json()).get_lora(kQuery); }
  float first;
  std::memcpy(&first, layer.lora_a.view.data, 4);
  EXPECT_EQ(first, 0.01F);
}

TEST(LoRAModel, DigestIsOfContentNotOfNamesOrderOrPlace) {
  AdapterBuilder plain = AdapterBuilder().query_and_value();
  const auto digest = accepted(plain, config_json()).digest();
  EXPECT_EQ(accepted(plain, config_json(), {.lora_model_id = 9}).digest(), digest);
  ThreadPool pool(4);
  EXPECT_EQ(accepted(plain, config_json()).digest(pool), digest);

  AdapterBuilder turned = plain;
  std::reverse(turned.tensors.begin(), turned.tensors.end());
  EXPECT_EQ(accepted(turned, config_json()).digest(), digest);

  AdapterBuilder raw = plain;  // as state_dict() has it, with the adapter's name inside
  for (auto& tensor : raw.tensors) tensor.name.insert(tensor.name.rfind(".weight"), ".default");
  EXPECT_EQ(accepted(raw, config_json()).digest(), digest);
  EXPECT_EQ(accepted(plain, config_json(R"(,"lora_dropout":0.1,"peft_version":"0.9")")).digest(), digest);
  // The same scale by other words.
  EXPECT_EQ(accepted(plain, config_json(R"(,"alpha_pattern":{"q_proj":4})")).digest(), digest);

  EXPECT_NE(accepted(plain, config_json(R"(,"use_rslora":true)")).digest(), digest);
  EXPECT_NE(accepted(plain, config_json(R"(,"alpha_pattern":{"layers.1.self_attn.q_proj":5})")).digest(), digest);
  EXPECT_NE(accepted(plain, config_json(R"(,"alora_invocation_tokens":[3])")).digest(), digest);
  AdapterBuilder changed = plain;
  changed.tensors[2].values[1] += 0.5F;
  EXPECT_NE(accepted(changed, config_json()).digest(), digest);
  AdapterBuilder half = plain;
  for (auto& tensor : half.tensors) tensor.dtype = "F16";
  EXPECT_NE(accepted(half, config_json()).digest(), digest);
  std::swap(changed.tensors[0].name, changed.tensors[4].name);  // layer 0's and layer 1's A
  EXPECT_NE(accepted(changed, config_json()).digest(), digest);
}

TEST(LoRAModel, PatternsGiveEachModuleItsRankAndScale) {
  AdapterBuilder builder;
  builder.query_and_value(2);
  builder.remove("model.layers.1.self_attn.q_proj.lora_A.weight").remove("model.layers.1.self_attn.q_proj.lora_B.weight");
  builder.pair("model.layers.1.self_attn.q_proj", 4, kHidden, kHidden);
  const std::string config =
      config_json(R"(,"use_rslora":true,"rank_pattern":{"layers.1.self_attn.q_proj":4},"alpha_pattern":{"v_proj":6})");
  const LoRAModel model = accepted(builder, config);
  EXPECT_EQ(model.rank(), 4);
  EXPECT_FLOAT_EQ(model.get_lora("model.layers.1.self_attn.q_proj")->scaling, 4.0F / 2.0F);
  EXPECT_FLOAT_EQ(model.get_lora(kQuery)->scaling, 4.0F / std::sqrt(2.0F));
  EXPECT_FLOAT_EQ(model.get_lora("model.layers.0.self_attn.v_proj")->scaling, 6.0F / std::sqrt(2.0F));
  EXPECT_THAT(refusal(builder, config_json()), HasSubstr("'model.layers.1.self_attn.q_proj' has rank 4 in the file and 2"));
}

TEST(LoRAModel, FusedModulesAreSplitByTheModelsBorders) {
  AdapterBuilder builder;
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    builder.pair(std::string(layer) + "self_attn.qkv_proj", 2, kHidden, kHidden + 2 * kKeys);
  }
  const LoRAModel model = accepted(builder, config_json("", R"(["qkv_proj"])"));
  ASSERT_EQ(model.loras().size(), 6u);
  const auto* q = model.get_lora("model.layers.0.self_attn.q_proj");
  const auto* k = model.get_lora("model.layers.0.self_attn.k_proj");
  const auto* v = model.get_lora("model.layers.0.self_attn.v_proj");
  EXPECT_EQ(k->lora_a.view.data, q->lora_a.view.data);
  EXPECT_TRUE(k->shares_lora_a);
  EXPECT_EQ(k->lora_b.view.shape, Shape({kKeys, 2}));
  EXPECT_EQ(k->lora_b.view.data, q->lora_b.view.data + kHidden * 2 * 4);
  EXPECT_EQ(v->lora_b.view.data, q->lora_b.view.data + (kHidden + kKeys) * 2 * 4);
  EXPECT_EQ(model.size_bytes(), 2 * 4 * (2 * kHidden + 2 * (kHidden + 2 * kKeys)));

  builder.pair(kQuery, 2, kHidden, kHidden);
  EXPECT_THAT(refusal(builder, config_json("", R"(["qkv_proj","layers.0.self_attn.q_proj"])")), HasSubstr("adapted twice"));
}

TEST(LoRAModel, EmbeddingAndHead) {
  AdapterBuilder builder;
  builder.add("base_model.model.model.embed_tokens.lora_embedding_A", {2, kVocabulary}, "BF16")
      .add("base_model.model.model.embed_tokens.lora_embedding_B", {kHidden, 2}, "BF16")
      .add("base_model.model.model.embed_tokens.base_layer.weight", {kVocabulary, kHidden}, "F16")
      .pair("lm_head", 2, kHidden, kVocabulary);
  const std::string targets = R"(["embed_tokens","lm_head"])";
  const LoRAModel model = accepted(builder, config_json("", targets));
  EXPECT_TRUE(model.get_lora("model.embed_tokens")->is_embedding);
  EXPECT_FALSE(model.get_lora("lm_head")->is_embedding);
  EXPECT_TRUE(model.replaced_weights().empty());
  EXPECT_THAT(model.notes(), Contains(HasSubstr("frozen copy")));

  EXPECT_THAT(refusal(builder, config_json(R"(,"ensure_weight_tying":true)", targets)), HasSubstr("ensure_weight_tying"));
  AdapterBuilder wrong = builder;
  wrong.at("model.embed_tokens.lora_embedding_A").shape = {kVocabulary, 2};
  EXPECT_THAT(refusal(wrong, config_json("", targets)), HasSubstr("lora_embedding_A' has shape [10, 2]"));
  wrong = builder;
  wrong.at("model.embed_tokens.base_layer.weight").shape = {kHidden, kVocabulary};
  EXPECT_THAT(refusal(wrong, config_json("", targets)), HasSubstr("base_layer.weight' has shape [8, 10]"));
  wrong = AdapterBuilder().pair("model.embed_tokens", 2, kHidden, kVocabulary);
  EXPECT_THAT(refusal(wrong, config_json("", R"(["embed_tokens"])")), HasSubstr("lora_embedding_A"));
}

TEST(LoRAModel, DoraNeedsItsMagnitudes) {
  AdapterBuilder builder;
  builder.pair(kQuery, 2, kHidden, kHidden).add(std::string("base_model.model.") + kQuery + ".lora_magnitude_vector", {kHidden});
  const std::string targets = R"(["layers.0.self_attn.q_proj"])";
  const std::string dora = config_json(R"(,"use_dora":true)", targets);
  EXPECT_TRUE(accepted(builder, dora).get_lora(kQuery)->is_dora());
  EXPECT_THAT(refusal(builder, config_json("", targets)), HasSubstr("use_dora is false in the config"));
  builder.tensors[2].name += ".default.weight";  // PEFT since 0.9, in memory
  EXPECT_TRUE(accepted(builder, dora).get_lora(kQuery)->is_dora());
  builder.tensors[2].shape = {1, kHidden};
  EXPECT_THAT(refusal(builder, dora), HasSubstr("[1, 8]"));
  builder.tensors.pop_back();
  EXPECT_THAT(refusal(builder, dora), HasSubstr("has no lora_magnitude_vector"));
  AdapterBuilder alone;
  alone.add(std::string(kQuery) + ".lora_magnitude_vector", {kHidden});
  EXPECT_THAT(refusal(alone, dora), HasSubstr("a low-rank pair that is not in the file"));
}

TEST(LoRAModel, Biases) {
  AdapterBuilder builder;
  builder.pair(kQuery, 2, kHidden, kHidden).add(std::string("base_model.model.") + kQuery + ".lora_B.bias", {kHidden});
  const std::string targets = R"(["layers.0.self_attn.q_proj"])";
  EXPECT_FALSE(accepted(builder, config_json(R"(,"lora_bias":true)", targets)).get_lora(kQuery)->bias.empty());
  EXPECT_THAT(refusal(builder, config_json("", targets)), HasSubstr("lora_bias is false"));
  LoRALoadOptions off;
  off.config.bias_enabled = false;
  EXPECT_THAT(refusal(builder, config_json(R"(,"lora_bias":true)", targets), off), HasSubstr("bias_enabled"));

  AdapterBuilder trained;
  trained.pair(kQuery, 2, kHidden, kHidden).add(std::string("base_model.model.") + kQuery + ".base_layer.bias", {kHidden});
  trained.add("base_model.model.model.layers.1.self_attn.k_proj.bias", {kKeys});
  const LoRAModel model = accepted(trained, config_json(R"(,"bias":"all")", targets));
  EXPECT_EQ(model.replaced_biases().size(), 2u);
  EXPECT_EQ(model.replaced_biases().at("model.layers.1.self_attn.k_proj").view.shape, Shape({kKeys}));
  EXPECT_TRUE(model.replaced_weights().empty());
  EXPECT_THAT(refusal(trained, config_json("", targets)), HasSubstr("bias = none"));
  EXPECT_THAT(refusal(trained, config_json(R"(,"bias":"all")", targets), off), HasSubstr("bias_enabled"));
  trained.add("base_model.model.model.layers.0.self_attn.o_proj.bias", {kHidden});
  EXPECT_THAT(refusal(trained, config_json(R"(,"bias":"all")", targets)), HasSubstr("has no bias in this model"));
}

TEST(LoRAModel, OtherTypesAreConvertedOrRefused) {
  AdapterBuilder builder;
  builder.query_and_value();
  for (auto& tensor : builder.tensors) tensor.dtype = "F64";
  EXPECT_EQ(accepted(builder, config_json()).get_lora(kQuery)->lora_a.view.dtype, DType::kF32);
  builder.tensors[0].dtype = "I64";
  EXPECT_THAT(refusal(builder, config_json()), HasSubstr("adapters are float32, float16 or bfloat16"));
}

}  // namespace
}  // namespace choral::lora
