// GGUF through the engine: a model or an adapter, written as llama.cpp's converter writes it, gives the bits of Hugging Face's
// and PEFT's files, whatever stands in another order there or in parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "engine/tiny_model_test.h"
#include "golden/adapter_kind.h"
#include "golden/gguf_writer.h"
#include "golden/golden.h"
#include "support/temp_dir.h"
#include "support/test_paths.h"

namespace choral::golden {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kData = testing::test_data();

Json read_json(const fs::path& path) { return Json::parse(std::ifstream(path)); }

std::vector<Request> prompts(const std::string& adapter) {
  std::vector<Request> requests;
  for (const int length : {3, 37}) {
    auto request = engine::greedy_request(engine::random_prompt(length, static_cast<uint32_t>(length)), 12);
    if (!adapter.empty()) request.adapters.push_back({adapter});
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Answers {
  std::vector<RequestOutput> base, adapted;
  AdapterInfo info;
};

// `tokenizer`: a GGUF model that the tests write has none.
Answers answers(const fs::path& model, const fs::path& tokenizer, const fs::path& adapter) {
  auto llm = LLM::load({.model = model.string(),
                        .tokenizer = tokenizer.string(),
                        .kv_cache_dtype = "float32",
                        .device = test_device(),
                        .threads = 2,
                        .adapters = {{"it", adapter.string()}}});
  if (!llm.ok()) {
    ADD_FAILURE() << llm.status().to_string();
    return {};
  }
  return {(*llm)->generate(prompts("")), (*llm)->generate(prompts("it")), (*llm)->adapters().front()};
}

void expect_same(const std::vector<RequestOutput>& a, const std::vector<RequestOutput>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) engine::expect_same_bits(a[i], b[i]);
}

// Of other arithmetic with the same numbers.
void expect_close(const std::vector<RequestOutput>& a, const std::vector<RequestOutput>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const auto &wanted = a[i].completions.at(0), &got = b[i].completions.at(0);
    EXPECT_EQ(wanted.token_ids.at(0), got.token_ids.at(0));
    EXPECT_NEAR(wanted.logprobs.at(0).chosen.logprob, got.logprobs.at(0).chosen.logprob, 1e-4);
  }
}

void expect_effect(const Answers& got) {
  ASSERT_EQ(got.base.size(), got.adapted.size());
  for (size_t i = 0; i < got.base.size(); ++i) {
    ASSERT_TRUE(got.adapted[i].status.ok()) << got.adapted[i].status.to_string();
    EXPECT_NE(got.base[i].completions.at(0).logprobs.at(0).chosen.logprob,
              got.adapted[i].completions.at(0).logprobs.at(0).chosen.logprob)
        << "an adapter without effect proves nothing";
  }
}

// The same adapter as a .gguf file.
fs::path as_gguf(const fs::path& peft, const Json& model_config, const testing::TempDir& folder) {
  const auto file = lora::read_adapter_file(peft);
  CHORAL_CHECK(file.ok(), file.status().message());
  const double alpha = read_json(peft / "adapter_config.json").at("lora_alpha");
  return folder.write(peft.filename().string() + ".gguf", gguf_adapter(*file, alpha, model_config));
}

class TinyGgufAdapterTest : public ::testing::TestWithParam<const char*> {};

// Adapters as PEFT saved them; golden_test.cc holds them against transformers and PEFT.
TEST_P(TinyGgufAdapterTest, EqualsPeftsFilesToTheBit) {
  const fs::path peft = kData / "lora" / GetParam();
  const fs::path model = kData / "models" / std::string(GetParam()).substr(0, std::string(GetParam()).find("-lora"));
  const testing::TempDir folder;
  const fs::path gguf = as_gguf(peft, read_json(model / "config.json"), folder);
  const Answers wanted = answers(model, model, peft), got = answers(model, model, gguf);
  expect_effect(wanted);
  expect_same(wanted.base, got.base);
  expect_same(wanted.adapted, got.adapted);
  EXPECT_EQ(wanted.info.digest, got.info.digest) << "equal content in another container";
}

INSTANTIATE_TEST_SUITE_P(Families, TinyGgufAdapterTest,
                         ::testing::Values("tiny-llama3-lora-all", "tiny-mistral-lora-qv", "tiny-qwen2-lora-mlp",
                                           "tiny-qwen3-lora-all", "tiny-phi3-lora-all", "tiny-gemma4-e-lora-all"),
                         [](const auto& tested) {
                           const std::string name = tested.param;
                           return name.substr(5, name.find('-', 5) - 5);
                         });

struct Base {
  const char* model;
  int64_t head_dim;
};

class GgufAdapterOverBasesTest : public ::testing::TestWithParam<Base> {};

// Everything the format can hold: pairs on all linear layers, the embedding and an untied head, ranks that differ, a whole norm.
void build(AdapterKind& kind, const WeightSet& base) {
  const bool tied = !base.contains("lm_head.weight");
  kind.config["target_modules"] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens"};
  if (!tied) kind.config["target_modules"].push_back("lm_head");
  kind.config["rank_pattern"] = {{"k_proj", 3}};
  kind.config["modules_to_save"] = {"model.norm"};
  for (const auto& module : linear_modules(base)) kind.add_pair(module, module.ends_with("k_proj") ? 3 : 0);
  kind.add_embedding_pair("model.embed_tokens");
  if (!tied) kind.add_head_pair("lm_head.weight");
  kind.replace("model.norm.weight", 0.3f);
}

TEST_P(GgufAdapterOverBasesTest, FourWaysOneAnswer) {
  const fs::path source = kData / "models" / GetParam().model;
  Json config = read_json(source / "config.json");
  config.erase("rope_scaling");
  config.erase("dtype");
  config["torch_dtype"] = "float32";
  // What GGUF has no words for in Gemma.
  if (config.contains("query_pre_attn_scalar")) config["query_pre_attn_scalar"] = config["head_dim"];
  config.erase("layer_types"), config.erase("sliding_window_pattern");
  auto weights = read_weights(source);
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  if (const int64_t head_dim = GetParam().head_dim; head_dim != config["head_dim"].get<int64_t>()) {
    const int64_t hidden = config["hidden_size"], q = head_dim * config["num_attention_heads"].get<int64_t>(),
                  kv = head_dim * config["num_key_value_heads"].get<int64_t>();
    config["head_dim"] = head_dim;
    uint32_t seed = 1;
    for (auto& [name, matrix] : *weights) {
      if (name.ends_with("q_proj.weight")) matrix = random_matrix({q, hidden}, 0.2f, ++seed);
      if (name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight")) matrix = random_matrix({kv, hidden}, 0.2f, ++seed);
      if (name.ends_with("o_proj.weight")) matrix = random_matrix({hidden, q}, 0.2f, ++seed);
    }
  }
  const testing::TempDir folder;
  const fs::path files = folder.path() / "files", peft = folder.path() / "peft";
  fs::create_directories(files), fs::create_directories(peft);
  std::ofstream(files / "config.json") << config.dump();
  ASSERT_TRUE(write_weights(files / "model.safetensors", *weights).ok());
  const fs::path gguf = folder.write("model.gguf", gguf_model(*weights, config));

  AdapterKind kind(*weights, 4, 8);
  build(kind, *weights);
  std::ofstream(peft / "adapter_config.json") << kind.config.dump();
  ASSERT_TRUE(write_weights(peft / "adapter_model.safetensors", kind.files).ok());
  const fs::path adapter = as_gguf(peft, config, folder);

  const Answers wanted = answers(files, source, peft);
  expect_effect(wanted);
  for (const auto& [model, lora] : {std::pair(files, adapter), std::pair(gguf, peft), std::pair(gguf, adapter)}) {
    SCOPED_TRACE(model.filename().string() + " with " + lora.filename().string());
    const Answers got = answers(model, source, lora);
    expect_same(wanted.base, got.base);
    expect_same(wanted.adapted, got.adapted);
  }
}

INSTANTIATE_TEST_SUITE_P(Bases, GgufAdapterOverBasesTest,
                         ::testing::Values(Base{"tiny-llama3", 16}, Base{"tiny-llama3", 32}, Base{"tiny-qwen3", 32},
                                           Base{"tiny-gemma2", 24}, Base{"tiny-gemma3", 16}),
                         [](const auto& tested) {
                           return std::string(tested.param.model).substr(5) + "_head_dim_" +
                                  std::to_string(tested.param.head_dim);
                         });

struct Family {
  const char* model;
  const char* adapter;
  GgufForm form = {};
};

class GgufFamiliesTest : public ::testing::TestWithParam<Family> {};

// Mixtures, latent attention and merged matrices as files of either kind, with an adapter of them.
TEST_P(GgufFamiliesTest, TwoWaysOneAnswer) {
  const std::string model = GetParam().model;
  const fs::path source = kData / "models" / model, adapter = kData / "lora" / (model + GetParam().adapter);
  Json config = read_json(source / "config.json");
  config["torch_dtype"] = "float32";
  if (config.contains("swiglu_limit")) config["swiglu_limit"] = 7;  // GGUF's readers know no other
  const auto weights = read_weights(source);
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  const testing::TempDir folder;
  const fs::path files = folder.path() / "files";
  fs::create_directories(files);
  std::ofstream(files / "config.json") << config.dump();
  ASSERT_TRUE(write_weights(files / "model.safetensors", *weights).ok());
  const fs::path gguf = folder.write("model.gguf", gguf_model(*weights, config, GetParam().form));
  const Answers wanted = answers(files, source, adapter), got = answers(gguf, source, adapter);
  expect_effect(wanted);
  // The columns of a delta net's out_proj lie otherwise there, so its sums go another way.
  const bool sums_alike = !GetParam().form.mxfp4_experts && config.value("model_type", "").find("qwen3_5") == std::string::npos;
  const auto expect = sums_alike ? expect_same : expect_close;
  expect(wanted.base, got.base);
  expect(wanted.adapted, got.adapted);
}

INSTANTIATE_TEST_SUITE_P(
    Families, GgufFamiliesTest,
    ::testing::Values(
        Family{"tiny-qwen3moe", "-lora-experts"}, Family{"tiny-olmoe", "-lora-all"}, Family{"tiny-qwen2moe", "-lora-all"},
        Family{"tiny-glm4moe", "-lora-all"}, Family{"tiny-granitemoe", "-lora-all"}, Family{"tiny-granite-h", "-lora-all"},
        Family{"tiny-granite-h-moe", "-lora-all"}, Family{"tiny-ernie4_5moe", "-lora-all"},
        Family{"tiny-minimax-m2", "-lora-all"}, Family{"tiny-llama4", "-lora-all"}, Family{"tiny-phi3", "-lora-all"},
        Family{"tiny-phimoe", "-lora-all"}, Family{"tiny-smollm3", "-lora-all"}, Family{"tiny-olmo3", "-lora-all"},
        Family{"tiny-granite", "-lora-all"}, Family{"tiny-ministral3", "-lora-all"}, Family{"tiny-glm4", "-lora-all"},
        Family{"tiny-exaone4", "-lora-all"}, Family{"tiny-hunyuan", "-lora-all"}, Family{"tiny-hunyuan-moe", "-lora-all"},
        Family{"tiny-cohere", "-lora-all"}, Family{"tiny-cohere2", "-lora-all"}, Family{"tiny-deepseek-v2", "-lora-all"},
        Family{"tiny-deepseek-v2", "-lora-all", {.early = true}}, Family{"tiny-deepseek-v3", "-lora-mla"},
        Family{"tiny-deepseek-v3", "-lora-mla", {.early = true}}, Family{"tiny-gpt-oss", "-lora-all"},
        Family{"tiny-qwen3-next", "-lora-all"}, Family{"tiny-qwen3-next", "-lora-all", {.early = true}},
        Family{"tiny-qwen3-5", "-lora-all"}, Family{"tiny-qwen3-5-moe", "-lora-all"},
        Family{"tiny-gpt-oss", "-lora-all", {.mxfp4_experts = true}}, Family{"tiny-gemma4-e", "-lora-all"},
        Family{"tiny-gemma4-moe", "-lora-all"}),
    [](const auto& tested) {
      std::string name = std::string(tested.param.model).substr(5);
      std::replace(name.begin(), name.end(), '-', '_');
      return name + (tested.param.form.early ? "_as_it_was_written" : tested.param.form.mxfp4_experts ? "_mxfp4" : "");
    });

// DeepSeek-V2-Lite: queries without a latent of their own, whose rows keep their order.
TEST(GgufLatentTest, QueriesOfTheInputItself) {
  const fs::path source = kData / "models/tiny-deepseek-v2";
  Json config = read_json(source / "config.json");
  config["torch_dtype"] = "float32";
  config["q_lora_rank"] = nullptr;
  auto weights = read_weights(source);
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  std::erase_if(*weights, [](const auto& tensor) { return tensor.first.find(".q_a_") != std::string::npos; });
  const int64_t rows = config["num_attention_heads"].get<int64_t>() *
                       (config["qk_nope_head_dim"].get<int64_t>() + config["qk_rope_head_dim"].get<int64_t>());
  for (uint32_t layer = 0; layer < config["num_hidden_layers"].get<uint32_t>(); ++layer) {
    const std::string attention = "model.layers." + std::to_string(layer) + ".self_attn.";
    weights->erase(attention + "q_b_proj.weight");
    (*weights)[attention + "q_proj.weight"] = random_matrix({rows, config["hidden_size"]}, 0.2F, layer + 1);
  }
  const testing::TempDir folder;
  const fs::path files = folder.path() / "files", peft = folder.path() / "peft";
  fs::create_directories(files), fs::create_directories(peft);
  std::ofstream(files / "config.json") << config.dump();
  ASSERT_TRUE(write_weights(files / "model.safetensors", *weights).ok());
  const fs::path gguf = folder.write("model.gguf", gguf_model(*weights, config));
  AdapterKind kind(*weights, 4, 8);
  kind.config["target_modules"] = {"q_proj", "kv_b_proj"};
  for (const auto& [name, matrix] : *weights) {
    const std::string module = name.substr(0, name.rfind('.'));
    if (module.ends_with(".q_proj") || module.ends_with(".kv_b_proj")) kind.add_pair(module);
  }
  std::ofstream(peft / "adapter_config.json") << kind.config.dump();
  ASSERT_TRUE(write_weights(peft / "adapter_model.safetensors", kind.files).ok());
  const Answers wanted = answers(files, source, peft), got = answers(gguf, source, peft);
  expect_effect(wanted);
  expect_same(wanted.base, got.base);
  expect_same(wanted.adapted, got.adapted);
}

}  // namespace
}  // namespace choral::golden
