// Every family and its adapters against transformers and PEFT: all prompts of base and adapters in one batch, greedy ids equal up
// to the first legitimate tie, first-step log-probabilities within 2e-3.
#include "golden/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "choral/llm.h"
#include "golden/weight_set.h"
#include "support/temp_dir.h"
#include "support/test_paths.h"
#include "support/tiny_models.h"

namespace choral::golden {
namespace {

namespace fs = std::filesystem;

constexpr double kTie = 1e-3;
constexpr double kTolerance = 2e-3;
constexpr double kRoundingTo16 = 1.0 / 256;  // of bf16, relative

std::vector<RequestOutput> answer(LLM& llm, const std::vector<Golden>& goldens, int most_guessed) {
  std::vector<Request> requests;
  for (const auto& g : goldens) {
    Request request;
    if (g.adapter != "base") request.adapters = {{g.adapter}};
    request.prompt_token_ids = g.prompt_ids;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = static_cast<int>(g.greedy_ids.size());
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 10;
    request.most_guessed = most_guessed;
    requests.push_back(std::move(request));
  }
  return llm.generate(std::move(requests));
}

// `logit_error`: of a logit, relative to the largest.
void expect_equal(const Golden& g, const RequestOutput& output, double logit_error) {
  const double off = logit_error * std::abs(g.top_logit), tie = kTie + 2 * off, tolerance = kTolerance + 2 * off;
  SCOPED_TRACE(g.model + " " + g.adapter + " " + g.prompt_id);
  ASSERT_TRUE(output.status.ok()) << output.status.to_string();
  const auto& completion = output.completions.at(0);
  ASSERT_EQ(completion.token_ids.size(), g.greedy_ids.size());
  for (size_t step = 0; step < g.greedy_ids.size(); ++step) {
    if (completion.token_ids[step] == g.greedy_ids[step]) continue;
    EXPECT_LE(g.gaps[step], tie) << "step " << step << ": " << completion.token_ids[step] << " instead of " << g.greedy_ids[step];
    break;  // what follows continues another text
  }
  const auto& top = completion.logprobs.at(0).top;
  ASSERT_EQ(top.size(), g.top_ids.size());
  for (size_t i = 0; i < g.top_ids.size(); ++i) {
    const auto found = std::find_if(top.begin(), top.end(), [&](const auto& t) { return t.token_id == g.top_ids[i]; });
    const double got = found != top.end() ? found->logprob : top.back().logprob;  // one of two near-equal last places may differ
    EXPECT_NEAR(got, g.top_logprobs[i], tolerance) << "token " << g.top_ids[i];
  }
}

void check_model(EngineOptions options, const std::string& goldens_file, const std::string& model,
                 const std::string& adapters_folder, double logit_error = 0) {
  const auto goldens = read_goldens(testing::test_data("/goldens/" + goldens_file), model);
  ASSERT_FALSE(goldens.empty());
  std::set<std::string> adapters;
  for (const auto& g : goldens) adapters.insert(g.adapter);
  adapters.erase("base");
  ASSERT_FALSE(adapters.empty());
  for (const auto& name : adapters) options.adapters.push_back({name, adapters_folder + "/" + name});
  options.device = test_device();
  auto llm = LLM::load(options);
  ASSERT_TRUE(llm.ok()) << llm.status().to_string();
  const auto plain = answer(**llm, goldens, 0), guessing = answer(**llm, goldens, SpeculationStats::kMostGuessed);
  for (size_t i = 0; i < goldens.size(); ++i) {
    expect_equal(goldens[i], plain[i], logit_error);
    EXPECT_EQ(plain[i].completions.at(0).token_ids, guessing[i].completions.at(0).token_ids);
    EXPECT_EQ(plain[i].completions.at(0).cumulative_logprob, guessing[i].completions.at(0).cumulative_logprob);
  }
}

class TinyGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(TinyGoldenTest, EqualsTransformersAndPeft) {
  const std::string model = GetParam();
  check_model({.model = testing::test_data("/models/" + model), .threads = 2}, "tiny.jsonl", model, testing::test_data("/lora"));
}

nlohmann::json config_of(const std::string& model) {
  nlohmann::json config;
  std::ifstream(testing::test_data("/models/" + model + "/config.json")) >> config;
  return config;
}

// x rounded to 16 bits for each product. A rounding moves an element by 2^-8 of itself at most, and a product's sums, the errors
// of whose terms have any sign, by no more of their own size. Four products of a layer follow each other, and the head: their
// errors add up as independent ones do. A router that is nearly undecided chooses other experts, which no such bound covers.
TEST_P(TinyGoldenTest, By16BitsOfXIsWithinTheirRounding) {
  const std::string model = GetParam();
  const auto config = config_of(model);
  for (const char* experts : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}) {
    if (config.contains(experts)) GTEST_SKIP() << "a mixture of experts";
  }
  const int layers = config.at("num_hidden_layers");
  const int products =
      config.value("hidden_size_per_layer_input", 0) > 0 ? 6 * layers + 2 : 4 * layers + 1;  // one behind the other
  check_model({.model = testing::test_data("/models/" + model), .activations = "16bit", .strict = true, .threads = 2},
              "tiny.jsonl", model, testing::test_data("/lora"), kRoundingTo16 * std::sqrt(products));
}

// A model's folder in which some files are others of it: (name, file in its place).
class ChangedFolder {
 public:
  ChangedFolder(const std::string& model, std::initializer_list<std::pair<const char*, const char*>> changes) {
    const fs::path from = fs::path(testing::test_data("/models")) / model;
    for (const auto& file : fs::directory_iterator(from)) fs::create_symlink(file.path(), dir_.path() / file.path().filename());
    for (const auto& [name, other] : changes) {
      fs::remove(dir_.path() / name);
      fs::create_symlink(from / other, dir_.path() / name);
    }
  }
  std::string path() const { return dir_.path().string(); }

 private:
  testing::TempDir dir_;
};

// The same model under its configuration as transformers 5 writes it.
TEST_P(TinyGoldenTest, EqualsThemUnderTheNewerConfiguration) {
  const std::string model = GetParam();
  const ChangedFolder folder(model, {{"config.json", "config.transformers5.json"}});
  check_model({.model = folder.path(), .threads = 2}, "tiny.jsonl", model, testing::test_data("/lora"));
}

// gpt-oss's experts as MXFP4, whose numbers are those of the bf16 file, adapters included.
TEST(TinyGoldenMxfp4Test, EqualsTransformersAndPeft) {
  const ChangedFolder folder("tiny-gpt-oss", {{"config.json", "config.mxfp4.json"},
                                              {"model.safetensors.index.json", "model.safetensors.index.mxfp4.json"}});
  check_model({.model = folder.path(), .threads = 2}, "tiny.jsonl", "tiny-gpt-oss", testing::test_data("/lora"));
}

INSTANTIATE_TEST_SUITE_P(Families, TinyGoldenTest, ::testing::ValuesIn(testing::tiny_models()),
                         [](const auto& tested) { return testing::family_of(tested.param); });

// A mixture that is Mistral: its router is undecided, so the first two experts share a token by halves, and their mean is the
// MLP. The others would be heard if they were chosen.
TEST(MixtralGolden, TwoHalvesOfAnMlpAreMistral) {
  const fs::path mistral = fs::path(testing::test_data("/models/tiny-mistral"));
  constexpr std::array<float, 4> kShares{1.5F, 0.5F, 100.0F, -7.0F};
  const auto weights = read_weights(mistral);
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  WeightSet mixture;
  for (const auto& [name, matrix] : *weights) {
    const size_t mlp = name.find(".mlp.");
    if (mlp == std::string::npos) {
      mixture[name] = matrix;
      continue;
    }
    const std::string block = name.substr(0, mlp) + ".block_sparse_moe.";
    const bool down = name.find("down_proj") != std::string::npos, gate = name.find("gate_proj") != std::string::npos;
    for (size_t e = 0; e < kShares.size(); ++e) {
      Matrix& own = mixture[block + "experts." + std::to_string(e) + (down ? ".w2" : gate ? ".w1" : ".w3") + ".weight"];
      own = matrix;
      if (!down) continue;
      for (float& value : own.values) value *= kShares[e];
    }
    const int64_t hidden = down ? matrix.rows() : matrix.cols(), experts = std::ssize(kShares);
    mixture[block + "gate.weight"] = {{experts, hidden}, std::vector<float>(experts * hidden)};
  }
  nlohmann::json config;
  std::ifstream(mistral / "config.json") >> config;
  config["architectures"] = {"MixtralForCausalLM"};
  config["num_local_experts"] = kShares.size();
  config["num_experts_per_tok"] = 2;
  const testing::TempDir dir;
  std::ofstream(dir.path() / "config.json") << config.dump();
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) fs::create_symlink(mistral / file, dir.path() / file);
  ASSERT_TRUE(write_weights(dir.path() / "model.safetensors", mixture).ok());
  check_model({.model = dir.path().string(), .threads = 2}, "tiny.jsonl", "tiny-mistral", testing::test_data("/lora"));
}

// A model that ./dev test fetches, where it could.
class RealModelTest : public ::testing::Test {
 protected:
  explicit RealModelTest(const char* variable) : variable_(variable), model_(std::getenv(variable)) {}
  void SetUp() override {
    if (model_ == nullptr) GTEST_SKIP() << variable_ << " names no file (./dev test fetches it)";
  }
  const char* model() const { return model_; }

 private:
  const char *const variable_, *const model_;
};

void expect_equal_tokens(const char* model, const std::string& goldens_file, size_t at_least) {
  const auto llm = LLM::load({.model = model});
  ASSERT_TRUE(llm.ok()) << llm.status().to_string();
  const auto goldens = read_tokenizer_goldens(testing::test_data("/text/goldens/" + goldens_file));
  ASSERT_GT(goldens.size(), at_least);
  for (const auto& g : goldens) {
    const auto ids = (*llm)->tokenize(g.text, /*add_special_tokens=*/false);
    ASSERT_TRUE(ids.ok()) << ids.status().to_string();
    EXPECT_EQ(*ids, g.ids) << g.text;
    EXPECT_EQ((*llm)->detokenize(g.ids), g.decoded) << g.text;
  }
}

class SmolLM2GoldenTest : public RealModelTest {
 protected:
  SmolLM2GoldenTest() : RealModelTest("CHORAL_DEMO_MODEL") {}
};

class Gemma270MGoldenTest : public RealModelTest {
 protected:
  Gemma270MGoldenTest() : RealModelTest("CHORAL_GEMMA_MODEL") {}
};

// The demo model's Q4_1 file, rounded to bf16 as the reference was, and the demo's six adapters.
TEST_F(SmolLM2GoldenTest, EqualsTransformersAndPeft) {
  check_model({.model = model(), .dtype = "bfloat16", .threads = 2}, "smollm2.jsonl", "", CHORAL_EXAMPLE_ADAPTERS);
}

// Quantised as it is stored: the CPU's fused operators give the bits of what they stand for, with and without adapters.
TEST_F(SmolLM2GoldenTest, FusedEqualsUnfusedToTheBit) {
  std::vector<std::vector<RequestOutput>> outputs;
  for (const char* fuse : {"all", "none"}) {
    auto llm = LLM::load({.model = model(),
                          .fuse = fuse,
                          .threads = 2,
                          .adapters = {{"pirate", std::string(CHORAL_EXAMPLE_ADAPTERS) + "/pirate"}}});
    ASSERT_TRUE(llm.ok()) << llm.status().to_string();
    std::vector<Request> requests;
    for (const bool adapted : {false, true}) {
      Request request{.prompt = "Tell me of the sea, and of what lives in it."};
      if (adapted) request.adapters = {{"pirate"}};
      request.sampling.temperature = 0;
      request.sampling.max_tokens = 12;
      request.sampling.logprobs = 5;
      requests.push_back(std::move(request));
    }
    outputs.push_back((*llm)->generate(std::move(requests)));
  }
  for (size_t i = 0; i < outputs[0].size(); ++i) {
    ASSERT_TRUE(outputs[0][i].status.ok()) << outputs[0][i].status.to_string();
    const auto &a = outputs[0][i].completions.at(0), &b = outputs[1][i].completions.at(0);
    EXPECT_EQ(a.token_ids, b.token_ids);
    for (size_t t = 0; t < a.logprobs.size(); ++t) EXPECT_EQ(a.logprobs[t].chosen.logprob, b.logprobs.at(t).chosen.logprob);
  }
}

// Its tokenizer, read from GGUF metadata, against Hugging Face's.
TEST_F(SmolLM2GoldenTest, TokenizerEqualsHuggingFace) { expect_equal_tokens(model(), "tokenizer-smollm2.jsonl", 200); }

// A real Gemma 3, whose window and whose two kinds of rope its prompts reach, and an adapter of it.
TEST_F(Gemma270MGoldenTest, EqualsTransformersAndPeft) {
  check_model({.model = model(), .dtype = "bfloat16", .threads = 2}, "gemma-270m.jsonl", "", testing::test_data("/lora"));
}

// The products of its block formats, by the roundings that bfloat16 made of them in the reference: of four products a layer and
// the head.
TEST_F(Gemma270MGoldenTest, AsStoredIsWithinTheRoundingsOfTheReference) {
  constexpr int kLayers = 18;
  check_model({.model = model(), .threads = 2}, "gemma-270m.jsonl", "", testing::test_data("/lora"),
              kRoundingTo16 * std::sqrt(4 * kLayers + 1));
}

TEST_F(Gemma270MGoldenTest, TokenizerEqualsTransformers) { expect_equal_tokens(model(), "tokenizer-gemma-270m.jsonl", 15); }

}  // namespace
}  // namespace choral::golden
