// Every kind of adapter against its definition: the engine with base and adapter, and the engine with a model whose weights have
// the adapter folded in by plain loops, must give the same tokens and log-probabilities. Prints the table of docs/adapters.md.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "choral/llm.h"
#include "golden/adapter_kind.h"
#include "golden/golden.h"
#include "support/temp_dir.h"

namespace choral::golden {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr double kTolerance = 1e-3;     // of a log-probability; folding rounds the weights once more than the engine does
constexpr double kWorthTesting = 0.02;  // an adapter that changes less than this proves nothing

struct Kind {
  const char* name;
  const char* model;
  void (*build)(AdapterKind& kind, const WeightSet& base);
};

void all_linear(AdapterKind& kind, const WeightSet& base) {
  for (const auto& module : linear_modules(base)) kind.add_pair(module);
}

std::string layer(int i) { return "model.layers." + std::to_string(i); }

const Kind kKinds[] = {
    {"LoRA on q_proj, v_proj", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj", "v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj"), k.add_pair(layer(i) + ".self_attn.v_proj");
     }},
    {"LoRA, target_modules \"all-linear\"", "tiny-llama3",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = "all-linear";
       all_linear(k, base);
     }},
    {"LoRA, target_modules a regex", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = R"(.*\.mlp\.(gate|down)_proj)";
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".mlp.gate_proj"), k.add_pair(layer(i) + ".mlp.down_proj");
     }},
    {"LoRA on k_proj alone, up_proj alone", "tiny-qwen3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"k_proj", "up_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.k_proj"), k.add_pair(layer(i) + ".mlp.up_proj");
     }},
    {"rsLoRA", "tiny-llama3",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["use_rslora"] = true;
       k.config["target_modules"] = "all-linear";
       k.set_scale(k.config["lora_alpha"].get<double>() / std::sqrt(k.config["r"].get<double>()));
       all_linear(k, base);
     }},
    {"rank_pattern, alpha_pattern", "tiny-mistral",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = {"q_proj", "v_proj", "down_proj"};
       k.config["rank_pattern"] = {{"v_proj", 3}, {R"(layers\.1\.mlp\.down_proj)", 7}};
       k.config["alpha_pattern"] = {{"down_proj", 5}};
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("q_proj")) k.add_pair(module);
         if (module.ends_with("v_proj")) k.add_pair(module, 3, 8.0 / 3);
         if (module.ends_with("layers.1.mlp.down_proj")) {
           k.add_pair(module, 7, 5.0 / 7);
         } else if (module.ends_with("down_proj")) {
           k.add_pair(module, 4, 5.0 / 4);
         }
       }
     }},
    {"layers_to_transform", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"o_proj", "gate_proj"};
       k.config["layers_to_transform"] = {1, 3};
       for (const int i : {1, 3}) k.add_pair(layer(i) + ".self_attn.o_proj"), k.add_pair(layer(i) + ".mlp.gate_proj");
     }},
    {"DoRA", "tiny-llama3",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = "all-linear";
       for (const auto& module : linear_modules(base)) k.add_dora(module);
     }},
    {"DoRA on a base with biases, q_proj only", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"q_proj"};
       for (int i = 0; i < 4; ++i) k.add_dora(layer(i) + ".self_attn.q_proj");
     }},
    {"lora_bias", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["lora_bias"] = true;
       k.config["target_modules"] = {"q_proj", "v_proj"};
       for (int i = 0; i < 4; ++i) {
         for (const char* p : {".self_attn.q_proj", ".self_attn.v_proj"}) k.add_pair(layer(i) + p), k.add_lora_bias(layer(i) + p);
       }
     }},
    {"bias = \"all\"", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["bias"] = "all";
       k.config["target_modules"] = {"q_proj", "k_proj", "v_proj"};
       for (int i = 0; i < 4; ++i) {
         for (const char* p : {".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj"}) {
           k.add_pair(layer(i) + p), k.replace_bias(layer(i) + p);
         }
       }
     }},
    {"embed_tokens", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"embed_tokens"};
       k.add_embedding_pair("model.embed_tokens");
     }},
    {"embed_tokens of a tied model", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"embed_tokens", "v_proj"};
       k.add_embedding_pair("model.embed_tokens");
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
     }},
    {"lm_head", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"lm_head"};
       k.add_head_pair("lm_head.weight");
     }},
    {"lm_head of a tied model", "tiny-qwen3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"lm_head"};
       k.add_head_pair("model.embed_tokens.weight");
     }},
    {"modules_to_save: norms", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj"};
       k.config["modules_to_save"] = {"model.norm", "layers.2.input_layernorm"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj");
       k.replace("model.norm.weight", 0.3f);
       k.replace(layer(2) + ".input_layernorm.weight", 0.3f);
     }},
    {"modules_to_save: lm_head, embed_tokens", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj"};
       k.config["modules_to_save"] = {"lm_head", "embed_tokens"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj");
       k.replace("lm_head.weight", 0.1f);
       k.replace("model.embed_tokens.weight", 0.1f);
     }},
    {"modules_to_save: a linear layer", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj"};
       k.config["modules_to_save"] = {"layers.1.self_attn.v_proj", "layers.2.mlp.down_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj");
       k.replace(layer(1) + ".self_attn.v_proj.weight", 0.2f);
       k.replace(layer(2) + ".mlp.down_proj.weight", 0.2f);
     }},
    {"trainable_token_indices", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("model.embed_tokens", {17, 3, 900}, /*tied_head=*/false);
     }},
    {"trainable_token_indices of a tied model", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("model.embed_tokens", {17, 3, 900}, /*tied_head=*/true);
     }},
    {"trainable_token_indices of a tied lm_head alone", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("lm_head", {17, 3, 900}, /*tied_head=*/false);
     }},
    {"trainable_token_indices of both, tied, other tokens each", "tiny-qwen3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("model.embed_tokens", {17, 3, 900}, /*tied_head=*/false);
       k.train_tokens("lm_head", {5, 17}, /*tied_head=*/false);
     }},
    {"trainable_token_indices of both, tied, the same tokens, saved once", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("model.embed_tokens", {17, 3, 900}, /*tied_head=*/true);
       k.config["trainable_token_indices"]["lm_head"] = {17, 3, 900};
     }},
};

class KindsTest : public ::testing::TestWithParam<Kind> {};

void write_adapter(const fs::path& folder, const AdapterKind& kind) {
  fs::create_directories(folder);
  std::ofstream(folder / "adapter_config.json") << kind.config.dump(1);
  ASSERT_TRUE(write_weights(folder / "adapter_model.safetensors", kind.files).ok());
}

void write_merged(const fs::path& folder, const fs::path& base, const AdapterKind& kind) {
  fs::create_directories(folder);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    fs::copy_file(base / file, folder / file);
  Json config = Json::parse(std::ifstream(base / "config.json"));
  config.erase("dtype");
  config["torch_dtype"] = "float32";
  if (kind.unties) config["tie_word_embeddings"] = false;
  std::ofstream(folder / "config.json") << config.dump(1);
  ASSERT_TRUE(write_weights(folder / "model.safetensors", kind.merged).ok());
}

std::vector<Request> prompts(const std::string& adapter) {
  std::vector<Request> requests;
  uint32_t seed = 5;
  for (const int length : {1, 9, 40}) {
    Request request;
    for (int i = 0; i < length; ++i)
      request.prompt_token_ids.push_back(static_cast<int32_t>((seed = seed * 1664525u + 1013904223u) >> 20));
    request.prompt_token_ids.back() = 17;  // a trained token
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 8;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 20;
    if (!adapter.empty()) request.adapters.push_back({adapter});
    requests.push_back(std::move(request));
  }
  return requests;
}

// The largest difference of a log-probability over the steps up to which both chose the same tokens; infinite when they part with
// no near-tie to excuse it.
double worst_difference(const std::vector<RequestOutput>& a, const std::vector<RequestOutput>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto &x = a[i].completions.at(0), &y = b[i].completions.at(0);
    for (size_t step = 0; step < x.token_ids.size(); ++step) {
      for (const auto& token : x.logprobs[step].top) {
        for (const auto& other : y.logprobs[step].top) {
          if (token.token_id == other.token_id)
            worst = std::max(worst, std::abs(static_cast<double>(token.logprob) - other.logprob));
        }
      }
      if (x.token_ids[step] == y.token_ids[step]) continue;
      const auto& top = x.logprobs[step].top;
      if (top[0].logprob - top[1].logprob > 2 * kTolerance) return INFINITY;
      break;
    }
  }
  return worst;
}

// The largest difference at the first step: what the adapter does to a prompt.
double first_step_difference(const std::vector<RequestOutput>& a, const std::vector<RequestOutput>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto &x = a[i].completions.at(0).logprobs.at(0).top, &y = b[i].completions.at(0).logprobs.at(0).top;
    for (size_t t = 0; t < x.size(); ++t) worst = std::max(worst, std::abs(static_cast<double>(x[t].logprob) - y[t].logprob));
  }
  return worst;
}

std::vector<RequestOutput> answers(const fs::path& model, const std::string& adapter_path) {
  EngineOptions options{.model = model.string(), .device = test_device(), .threads = 2};
  if (!adapter_path.empty()) options.adapters.push_back({"it", adapter_path});
  auto llm = LLM::load(options);
  if (!llm.ok()) {
    ADD_FAILURE() << llm.status().to_string();
    return {};
  }
  auto outputs = (*llm)->generate(prompts(adapter_path.empty() ? "" : "it"));
  for (const auto& output : outputs) EXPECT_TRUE(output.status.ok()) << output.status.to_string();
  return outputs;
}

TEST_P(KindsTest, EqualsItsDefinition) {
  const Kind& kind = GetParam();
  const fs::path base_path = fs::path(CHORAL_TEST_DATA) / "models" / kind.model;
  const auto base = read_weights(base_path);
  ASSERT_TRUE(base.ok()) << base.status().to_string();
  AdapterKind adapter(*base, /*rank=*/4, /*alpha=*/8);
  kind.build(adapter, *base);

  const testing::TempDir dir;
  ASSERT_NO_FATAL_FAILURE(write_adapter(dir.path() / "adapter", adapter));
  ASSERT_NO_FATAL_FAILURE(write_merged(dir.path() / "merged", base_path, adapter));
  const auto plain = answers(base_path, "");
  const auto adapted = answers(base_path, dir / "adapter");
  const auto merged = answers(dir.path() / "merged", "");
  ASSERT_FALSE(HasFailure());
  const double error = worst_difference(adapted, merged), effect = first_step_difference(adapted, plain);
  EXPECT_LT(error, kTolerance);
  EXPECT_GT(effect, kWorthTesting) << "the adapter does nothing to speak of";
  std::printf("| %s | %s | max difference %.1e (effect %.2g) |\n", kind.name, kind.model, error, effect);
}

// Copies to the host while each prompt is answered alone.
int64_t host_copies(const fs::path& model, const std::string& adapter_path) {
  EngineOptions options{.model = model.string(), .device = test_device(), .threads = 2};
  if (!adapter_path.empty()) options.adapters.push_back({"it", adapter_path});
  auto llm = LLM::load(options);
  if (!llm.ok()) {
    ADD_FAILURE() << llm.status().to_string();
    return 0;
  }
  const int64_t before = (*llm)->stats().host_copies;
  for (auto& prompt : prompts(adapter_path.empty() ? "" : "it")) {
    for (const auto& output : (*llm)->generate({std::move(prompt)})) EXPECT_TRUE(output.status.ok()) << output.status.to_string();
  }
  while ((*llm)->stats().running > 0) std::this_thread::yield();  // the last step's count comes after its token
  return (*llm)->stats().host_copies - before;
}

TEST_P(KindsTest, NoRowOfADeviceComesToTheHostForIt) {
  if (test_device() == "auto") GTEST_SKIP() << "the host's memory is this device's";
  const Kind& kind = GetParam();
  const fs::path base_path = fs::path(CHORAL_TEST_DATA) / "models" / kind.model;
  const auto base = read_weights(base_path);
  ASSERT_TRUE(base.ok()) << base.status().to_string();
  AdapterKind adapter(*base, /*rank=*/4, /*alpha=*/8);
  kind.build(adapter, *base);
  const testing::TempDir dir;
  ASSERT_NO_FATAL_FAILURE(write_adapter(dir.path() / "adapter", adapter));
  const int64_t without = host_copies(base_path, "");
  EXPECT_GT(without, 0) << "logits come to the host, or nothing is counted";
  EXPECT_EQ(host_copies(base_path, dir / "adapter"), without);
}

INSTANTIATE_TEST_SUITE_P(Adapters, KindsTest, ::testing::ValuesIn(kKinds), [](const auto& info) {
  std::string name;
  for (const char* c = info.param.name; *c != '\0'; ++c) {
    if (std::isalnum(static_cast<unsigned char>(*c)))
      name += *c;
    else if (!name.empty() && name.back() != '_')
      name += '_';
  }
  return name + (name.back() == '_' ? "" : "_") + (std::string(info.param.model).substr(5));
});

}  // namespace
}  // namespace choral::golden
