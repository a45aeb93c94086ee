// What an adapter will take is known before it is packed, to the byte; and what is packed is what was read.
#include "lora/store/packed_adapter_loader.h"

#include "lora/peft/loading_test.h"
#include "platform/cpu_context_test.h"

namespace choral::lora {
namespace {

struct Kind {
  const char* name;
  std::string config;
  AdapterBuilder builder;
};

std::vector<Kind> kinds() {
  const std::string query = std::string("base_model.model.") + kQuery;
  const std::string embedding = "base_model.model.model.embed_tokens.", head = "base_model.model.lm_head.";
  const std::string inner = "model.layers.1.mlp.", q = R"(["layers.0.self_attn.q_proj"])";
  std::vector<Kind> out;
  const auto add = [&](const char* name, std::string config) -> AdapterBuilder& {
    return out.emplace_back(Kind{name, std::move(config), {}}).builder;
  };
  add("LoRA", config_json()).query_and_value();
  add("ranks of their own", config_json(R"(,"rank_pattern":{"q_proj":5,"v_proj":3})"))
      .pair("model.layers.0.self_attn.q_proj", 5, kHidden, kHidden, "F16")
      .pair("model.layers.0.self_attn.v_proj", 3, kHidden, kKeys, "BF16")
      .pair("model.layers.1.self_attn.q_proj", 5, kHidden, kHidden)
      .pair("model.layers.1.self_attn.v_proj", 3, kHidden, kKeys);
  add("a fused module", config_json("", R"(["layers.1.mlp.gate_up_proj"])"))
      .pair(inner + "gate_up_proj", 2, kHidden, 2 * kInner, "BF16");
  add("DoRA", config_json(R"(,"use_dora":true)", q))
      .pair(kQuery, 2, kHidden, kHidden)
      .add(query + ".lora_magnitude_vector", {kHidden});
  add("lora_bias", config_json(R"(,"lora_bias":true)", q))
      .pair(kQuery, 2, kHidden, kHidden)
      .add(query + ".lora_B.bias", {kHidden});
  add("bias = all", config_json(R"(,"bias":"all")", q))
      .pair(kQuery, 2, kHidden, kHidden)
      .add(query + ".base_layer.bias", {kHidden})
      .add("base_model.model.model.layers.1.self_attn.k_proj.bias", {kKeys});
  add("embedding", config_json("", R"(["embed_tokens"])"))
      .add(embedding + "lora_embedding_A", {2, kVocabulary}, "BF16")
      .add(embedding + "lora_embedding_B", {kHidden, 2}, "BF16")
      .add(embedding + "base_layer.weight", {kVocabulary, kHidden});
  add("head", config_json("", R"(["lm_head"])")).pair("lm_head", 2, kHidden, kVocabulary, "F16");
  add("modules_to_save", config_json(R"(,"modules_to_save":["lm_head","embed_tokens","model.norm","layers.1.mlp.down_proj"])", q))
      .pair(kQuery, 2, kHidden, kHidden)
      .add(head + "weight", {kVocabulary, kHidden}, "BF16")
      .add(embedding + "weight", {kVocabulary, kHidden}, "F16")
      .add("base_model.model.model.norm.weight", {kHidden})
      .add("base_model.model." + inner + "down_proj.weight", {kHidden, kInner}, "BF16");
  add("trainable tokens", config_json(R"(,"trainable_token_indices":[7,1,3])"))
      .query_and_value()
      .add(embedding + "token_adapter.trainable_tokens_delta", {3, kHidden});
  add("tokens of its own", config_json(R"(,"trainable_token_indices":[7,11])"))
      .query_and_value()
      .add(embedding + "token_adapter.trainable_tokens_delta", {2, kHidden}, "F16")
      .add(embedding + "token_adapter.base_layer.weight", {kVocabulary + 3, kHidden})
      .add(head + "weight", {kVocabulary + 3, kHidden}, "BF16");
  add("tokens of its own, adapted", config_json("", R"(["embed_tokens","lm_head"])"))
      .pair("lm_head", 2, kHidden, kVocabulary + 1)
      .add(head + "base_layer.weight", {kVocabulary + 1, kHidden})
      .add(embedding + "lora_embedding_A", {2, kVocabulary + 1})
      .add(embedding + "lora_embedding_B", {kHidden, 2})
      .add(embedding + "base_layer.weight", {kVocabulary + 1, kHidden});
  return out;
}

std::vector<LoRATarget> targets() {
  auto all = testing::small_targets();
  for (auto& target : all) {  // DoRA asks for the base's rows
    if (target.kind != TargetKind::kLinear) continue;
    target.base_row = [](int64_t row, std::span<float> out) {
      std::fill(out.begin(), out.end(), 1.0F + static_cast<float>(row));
      return Status();
    };
  }
  return all;
}

std::string write(const TempDir& folder, const AdapterBuilder& builder, const std::string& config) {
  folder.write("adapter_config.json", config);
  return folder.write("adapter_model.safetensors", builder.safetensors());
}

const auto admit_all = [](int64_t) { return Status(); };

TEST(PackedBytes, AreKnownFromShapesForEveryKindAndFormat) {
  platform::testing::CpuContext cpu;
  const auto model_targets = targets();
  for (const auto& kind : kinds()) {
    for (const auto format :
         {LoRADType::kAuto, LoRADType::kFloat32, LoRADType::kFloat16, LoRADType::kBFloat16, LoRADType::kInt8}) {
      SCOPED_TRACE(fmt::format("{}, LoRADType {}", kind.name, static_cast<int>(format)));
      const TempDir folder;
      write(folder, kind.builder, kind.config);
      LoRALoadOptions options;
      options.config.lora_dtype = format;
      const auto peft = PEFTHelper::from_local_dir(folder.path());
      ASSERT_TRUE(peft.ok()) << peft.status().message();
      const auto shapes = read_adapter_shapes(folder.path());
      ASSERT_TRUE(shapes.ok()) << shapes.status().message();
      const auto shape_model = LoRAModel::from_adapter_file(*shapes, *peft, model_targets, options);
      ASSERT_TRUE(shape_model.ok()) << shape_model.status().message();
      const auto model = LoRAModel::from_local_checkpoint(folder.path(), *peft, model_targets, options);
      ASSERT_TRUE(model.ok()) << model.status().message();
      const auto packed = PackedAdapter::pack(*cpu, *model, model_targets, options.config);
      ASSERT_TRUE(packed.ok()) << packed.status().message();
      EXPECT_GT((*packed)->size_bytes(), 0);
      EXPECT_EQ(*PackedAdapter::packed_bytes(*shape_model, model_targets, options.config), (*packed)->size_bytes());
      EXPECT_EQ(*PackedAdapter::packed_bytes(*model, model_targets, options.config), (*packed)->size_bytes());
    }
  }
}

class PackedAdapterLoaderTest : public ::testing::Test {
 protected:
  PackedAdapterLoader loader(int64_t budget_bytes = 0) { return PackedAdapterLoader(*cpu_, targets_, {}, budget_bytes); }

  platform::testing::CpuContext cpu_;
  const std::vector<LoRATarget> targets_ = targets();
  const TempDir folder_;
  AdapterDescription described_;
};

TEST_F(PackedAdapterLoaderTest, AsksTheBudgetBeforeAnyTensorIsRead) {
  AdapterBuilder builder;
  builder.query_and_value();
  write(folder_, builder, config_json());
  int64_t needed = 0;
  const auto note = [&](int64_t bytes) {
    needed = bytes;
    return Status();
  };
  const auto packed = loader().load(folder_.path(), described_, note);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  EXPECT_EQ(needed, (*packed)->size_bytes());
  EXPECT_EQ(described_.kind, "LoRA");

  // A tensor that is refused as soon as it is read.
  builder.at(std::string(kQuery) + ".lora_A.weight").values[0] = std::numeric_limits<float>::infinity();
  write(folder_, builder, config_json());
  EXPECT_EQ(loader(needed).load(folder_.path(), described_, admit_all).status().code(), Code::kCorrupt);
  const auto never = [](int64_t) -> Status {
    ADD_FAILURE() << "asked for an adapter over the budget";
    return {};
  };
  const Status refused = loader(needed - 1).load(folder_.path(), described_, never).status();
  EXPECT_EQ(refused.code(), Code::kTooLarge) << refused.to_string();
  EXPECT_THAT(refused.message(), AllOf(HasSubstr(fmt::format("needs {} bytes", needed)),
                                       HasSubstr(fmt::format("has {};", needed - 1)), HasSubstr("--adapter-memory")));
  const auto not_now = [](int64_t) { return unavailable("not now"); };
  EXPECT_EQ(loader(needed).load(folder_.path(), described_, not_now).status().message(), "not now");
}

TEST_F(PackedAdapterLoaderTest, PacksWhatItRead) {
  AdapterBuilder one, other;
  one.query_and_value();
  other.query_and_value().at(std::string(kQuery) + ".lora_B.weight").values[0] = 3;
  const auto digest_of = [&](const AdapterBuilder& builder) { return accepted(builder, config_json()).digest(); };
  write(folder_, one, config_json());
  // The file becomes another between the look at its shapes and the reading: what counts is what was read.
  const auto overwrite = [&](int64_t) {
    folder_.write("adapter_model.safetensors", other.safetensors());
    return Status();
  };
  const auto packed = loader(1 << 20).load(folder_.path(), described_, overwrite);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  EXPECT_EQ((*packed)->digest(), digest_of(other));
}

TEST_F(PackedAdapterLoaderTest, MemoryMadeReadyChangesNothing) {
  AdapterBuilder one, other, less;
  one.query_and_value();
  other.query_and_value().at(std::string(kQuery) + ".lora_B.weight").values[0] = 3;
  less.pair(kQuery, 2, testing::kHidden, testing::kHidden);
  auto prepared = loader();
  for (const AdapterBuilder* builder : {&one, &other, &less, &one}) {
    write(folder_, *builder, builder == &less ? config_json("", R"(["layers.0.self_attn.q_proj"])") : config_json());
    const auto fresh = loader().load(folder_.path(), described_, admit_all);
    const auto packed = prepared.load(folder_.path(), described_, admit_all);
    ASSERT_TRUE(fresh.ok() && packed.ok()) << fresh.status().message() << packed.status().message();
    EXPECT_EQ((*packed)->panel_bytes(), (*fresh)->panel_bytes());
    for (size_t i = 0; i < targets_.size(); ++i) {
      const auto *module = (*packed)->module(static_cast<int>(i)), *expected = (*fresh)->module(static_cast<int>(i));
      ASSERT_EQ(module == nullptr, expected == nullptr);
      if (module == nullptr || !module->delta) continue;
      EXPECT_TRUE(std::ranges::equal(module->delta->panels(), expected->delta->panels())) << i;
    }
    ASSERT_TRUE(prepared.prepare_next().ok());
  }
}

TEST_F(PackedAdapterLoaderTest, AConfigThatChangesMeanwhileIsSeen) {
  AdapterBuilder builder;
  builder.query_and_value();
  write(folder_, builder, config_json());
  int left = 1;
  const auto replace = [&](int64_t) {
    if (left-- <= 0) return Status();
    folder_.write("new", config_json(R"(,"use_rslora":true)"));
    std::filesystem::rename(folder_ / "new", folder_ / "adapter_config.json");
    return Status();
  };
  const Status refused = loader().load(folder_.path(), described_, replace).status();
  EXPECT_EQ(refused.code(), Code::kUnavailable) << refused.to_string();
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("adapter_config.json"), HasSubstr("changed while it was read")));
  const auto second = loader().load(folder_.path(), described_, replace);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ((*second)->digest(), accepted(builder, config_json(R"(,"use_rslora":true)")).digest());
}

TEST(ReadAdapterFile, ItsTensorsStayWhatTheyWere) {
  for (const char* name : {"tiny-mistral-lora-qv", "tiny-mistral-lora-qv-bin"}) {  // safetensors, torch
    SCOPED_TRACE(name);
    const TempDir folder;
    std::filesystem::copy(std::string(CHORAL_TEST_DATA "/lora/") + name, folder.path(), std::filesystem::copy_options::recursive);
    const auto hash_of = [](const AdapterFile& file) {
      Sha256 hash;
      for (const auto& [tensor, value] : file.tensors) {
        hash.update({value.view.data, static_cast<size_t>(value.view.size_bytes())});
      }
      return to_hex(hash.finish());
    };
    const auto file = read_adapter_file(folder.path());
    ASSERT_TRUE(file.ok()) << file.status().message();
    const std::string before = hash_of(*file);
    const std::filesystem::path path = file->path;
    const auto size = std::filesystem::file_size(path);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    folder.write(path.filename().string(), std::string(size, 'y'));
    EXPECT_EQ(hash_of(*file), before) << "overwritten";
    std::filesystem::resize_file(path, 10);
    EXPECT_EQ(hash_of(*file), before) << "cut";
    EXPECT_FALSE(read_adapter_file(folder.path()).ok());
  }
}

TEST(ReadAdapterFile, OneThatMemoryCannotHoldIsNotRead) {
  const TempDir folder;
  const std::string path = folder.write("adapter_model.safetensors", "");
  std::error_code error;
  std::filesystem::resize_file(path, uint64_t{4} << 40, error);  // sparse
  if (error) GTEST_SKIP() << "this file system has no files of 4 TiB: " << error.message();
  AdapterLimits limits;
  limits.max_file_bytes = uint64_t{1} << 60;
  const Status refused = read_adapter_file(folder.path(), limits).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused.to_string();
  EXPECT_THAT(refused.message(), AllOf(HasSubstr(path), HasSubstr("read into memory"), HasSubstr("are free")));
}

}  // namespace
}  // namespace choral::lora
