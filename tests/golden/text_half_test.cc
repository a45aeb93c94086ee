// A model that also sees, whose half for text is a model of its own: the same bits, adapters included.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/tiny_model_test.h"
#include "golden/golden.h"
#include "golden/weight_set.h"
#include "support/temp_dir.h"
#include "support/test_paths.h"

namespace choral::golden {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kData = testing::test_data();

Json read_json(const fs::path& path) { return Json::parse(std::ifstream(path)); }

void write_model(const fs::path& folder, const Json& config, const WeightSet& weights) {
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << config.dump();
  ASSERT_TRUE(write_weights(folder / "model.safetensors", weights).ok());
}

// Every name that begins with `before` begins with `after`.
WeightSet renamed(const WeightSet& weights, std::string_view before, std::string_view after) {
  WeightSet out;
  for (const auto& [name, matrix] : weights) {
    out[name.starts_with(before) ? std::string(after) + name.substr(before.size()) : name] = matrix;
  }
  return out;
}

std::vector<RequestOutput> answers(const fs::path& model, const fs::path& adapter, const fs::path& tokenizer) {
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
  std::vector<Request> requests;
  for (const bool adapted : {false, true}) {
    requests.push_back(engine::greedy_request(engine::random_prompt(37, 5), 12));
    if (adapted) requests.back().adapters.push_back({"it"});
  }
  return (*llm)->generate(std::move(requests));
}

struct Seeing {
  const char* model;   // the half
  const char* whole;   // class
  const char* before;  // what stands in the place of "model."
};
class TextHalfTest : public ::testing::TestWithParam<Seeing> {};

TEST_P(TextHalfTest, AnswersAsTheTextModel) {
  const fs::path source = kData / "models" / GetParam().model,
                 peft = kData / "lora" / (std::string(GetParam().model) + "-lora-all");
  Json text = read_json(source / "config.json");
  text["torch_dtype"] = "float32";
  text.erase("dtype");
  const auto weights = read_weights(source), pairs = read_weights(peft / "adapter_model.safetensors");
  ASSERT_TRUE(weights.ok() && pairs.ok());
  const testing::TempDir folder;
  const fs::path plain = folder.path() / "plain", whole = folder.path() / "whole", adapter = folder.path() / "adapter";
  const fs::path plain_adapter = folder.path() / "plain_adapter";
  write_model(plain, text, *weights);

  Json config = {{"architectures", {GetParam().whole}},
                 {"vision_config", {{"hidden_size", 8}}},
                 {"eos_token_id", text["eos_token_id"]},
                 {"torch_dtype", "float32"}};
  for (const char* key : {"architectures", "eos_token_id", "torch_dtype"}) text.erase(key);
  config["text_config"] = text;
  WeightSet seeing = renamed(*weights, "model.", GetParam().before);
  seeing["vision_tower.embeddings.weight"] = random_matrix({4, 8}, 1, 1);
  write_model(whole, config, seeing);
  fs::create_directories(adapter);
  // Patterns are of the names where it was trained.
  Json lora = read_json(peft / "adapter_config.json");
  lora["alpha_pattern"] = {{"model.layers.0.mlp.up_proj", 64}};
  fs::create_directories(plain_adapter);
  std::ofstream(plain_adapter / "adapter_config.json") << lora.dump();
  fs::copy(peft / "adapter_model.safetensors", plain_adapter);
  lora["alpha_pattern"] = {{GetParam().before + std::string("layers.0.mlp.up_proj"), 64}};
  lora["target_modules"] = R"(.*language_model.*\.(\w*proj\w*|per_layer_\w+))";
  std::ofstream(adapter / "adapter_config.json") << lora.dump();
  const WeightSet named = renamed(*pairs, "base_model.model.model.", std::string("base_model.model.") + GetParam().before);
  ASSERT_TRUE(write_weights(adapter / "adapter_model.safetensors", named).ok());

  const auto wanted = answers(plain, plain_adapter, source), got = answers(whole, adapter, source);
  ASSERT_EQ(wanted.size(), 2u);
  ASSERT_EQ(got.size(), 2u);
  for (size_t i = 0; i < 2; ++i) engine::expect_same_bits(wanted[i], got[i]);
  EXPECT_NE(got[0].completions.at(0).logprobs.at(0).chosen.logprob, got[1].completions.at(0).logprobs.at(0).chosen.logprob);
}

// As transformers 4 and 5 call it.
constexpr Seeing kSeeing[] = {{"tiny-gemma3", "Gemma3ForConditionalGeneration", "language_model.model."},
                              {"tiny-gemma3", "Gemma3ForConditionalGeneration", "model.language_model."},
                              {"tiny-ministral3", "Mistral3ForConditionalGeneration", "language_model.model."},
                              {"tiny-mistral4", "Mistral3ForConditionalGeneration", "model.language_model."},
                              {"tiny-llama4", "Llama4ForConditionalGeneration", "language_model.model."},
                              {"tiny-gemma4-e", "Gemma4ForConditionalGeneration", "model.language_model."},
                              {"tiny-qwen3-5", "Qwen3_5ForConditionalGeneration", "model.language_model."},
                              {"tiny-qwen3", "Qwen3VLForConditionalGeneration", "model.language_model."}};
INSTANTIATE_TEST_SUITE_P(Names, TextHalfTest, ::testing::ValuesIn(kSeeing), [](const auto& tested) {
  std::string name = std::string(tested.param.model).substr(5);
  std::replace(name.begin(), name.end(), '-', '_');
  return name + (tested.param.before[0] == 'l' ? "_transformers4" : "_transformers5");
});

}  // namespace
}  // namespace choral::golden
