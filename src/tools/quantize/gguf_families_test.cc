// Every family that is read from GGUF is written to it: the file answers as the folder does, whose numbers are chosen so that
// blocks hold them exactly. What GGUF cannot say of a model is refused by its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/tiny_model_test.h"
#include "io/checkpoint.h"
#include "io/dense_stages.h"
#include "io/safetensors_writer.h"
#include "kernels/quant/dequantise.h"
#include "kernels/quant/quantise_blocks.h"
#include "platform/cpu_context_test.h"
#include "quant/shards.h"
#include "support/temp_dir.h"
#include "tensor/tensor.h"
#include "tools/quantize.h"

namespace choral::tools {
namespace {

using engine::tiny_options;
using ::testing::HasSubstr;
using Json = nlohmann::json;
namespace fs = std::filesystem;

// A tiny model, changed where GGUF has no word for what it is.
struct Family {
  std::string model;
  std::string changes = "{}";             // of its config.json
  std::vector<std::string> ignore = {};   // layers whose rows are no whole blocks, or whose blocks lie across the heads
  bool has_tokenizer_of_its_own = false;  // which GGUF cannot say: another is taken
};

const char* const kGemma3Layers = R"({"layer_types": ["sliding_attention", "sliding_attention", "sliding_attention",
  "sliding_attention", "sliding_attention", "full_attention"], "sliding_window_pattern": 6, "_sliding_window_pattern": 6})";

void PrintTo(const Family& family, std::ostream* out) { *out << family.model; }

std::vector<Family> families() {
  const std::vector<std::string> narrow{".*o_proj", ".*q_b_proj"};
  return {
      {"cohere"},
      {"cohere2"},
      {"deepseek-v2", "{}", narrow},
      {"deepseek-v3", "{}", narrow},
      {"deepseek-v32", "{}", narrow},
      {"ernie4_5moe"},
      {"exaone4"},
      {"gemma2", R"({"query_pre_attn_scalar": 24})"},
      {"gemma3", kGemma3Layers},
      {"gemma4-e"},
      {"gemma4-moe"},
      {"glm4"},
      {"glm4moe"},
      {"gpt-oss", R"({"swiglu_limit": 7})"},
      {"granite"},
      {"granite-h"},
      {"granite-h-moe", "{}", {".*shared_mlp.output_linear"}},
      {"granitemoe"},
      {"hunyuan"},
      {"hunyuan-moe"},
      {"llama3"},
      {"llama4"},
      {"minimax-m2"},
      {"ministral3"},
      {"mistral4", "{}", narrow},
      {"mistral", R"({"sliding_window": null})", {}, true},
      {"olmo3"},
      {"olmoe"},
      {"phi3"},
      {"phimoe"},
      {"qwen2"},
      {"qwen2moe"},
      {"qwen3"},
      {"qwen3-5", "{}", {".*linear_attn.out_proj"}},
      {"qwen3-5-moe", "{}", {".*linear_attn.out_proj", ".*shared_expert.down_proj"}},
      {"qwen3-next", "{}", {".*shared_expert.down_proj"}},
      {"qwen3moe"},
      {"smollm3"},
  };
}

// A tiny model's folder, whose matrices have rows that blocks of eight bits hold exactly, as float32.
class ExactModel {
 public:
  explicit ExactModel(const Family& family) : ExactModel(tiny_options("tiny-" + family.model).model, family) {}
  ExactModel(const fs::path& model, const Family& family) {
    const auto source = *io::Checkpoint::open(model);
    std::deque<Tensor> tensors;
    std::vector<io::TensorToWrite> all;
    for (const auto& name : source->names()) {
      if (io::is_of_dense_stage(name)) continue;  // in a file of its own
      const auto stored = *source->find(name);
      Tensor memory;
      const auto view = *quant::as_rows(*cpu_, stored, memory);
      Tensor& exact = tensors.emplace_back(*Tensor::allocate(DType::kF32, view.shape));
      const int64_t cols = view.shape.rank() == 0 ? 1 : view.cols();
      for (int64_t r = 0; r < view.shape.elements() / cols; ++r) {
        float* const row = exact.as<float>().data() + r * cols;
        kernels::dequantise_row(view.dtype, view.data + r * row_bytes(view.dtype, cols), cols, row);
        if (view.shape.rank() != 2 || cols % 32 != 0) continue;
        std::vector<std::byte> blocks(row_bytes(DType::kQ8_0, cols));
        kernels::quantise_row(DType::kQ8_0, row, cols, blocks.data());
        kernels::dequantise_row(DType::kQ8_0, blocks.data(), cols, row);
      }
      all.push_back({name, exact.view()});
    }
    CHORAL_CHECK(io::write_safetensors(folder_ / "model.safetensors", all).ok(), "the checkpoint is written");
    std::ifstream in(model / "config.json");
    auto config = Json::parse(in);
    config.update(Json::parse(family.changes));
    folder_.write("config.json", config.dump());
    const fs::path tokenizer = family.has_tokenizer_of_its_own ? fs::path(tiny_options("tiny-granite").model) : model;
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) fs::copy(tokenizer / file, folder_.path());
    for (const char* stage : {"modules.json", "1_Pooling", "2_Dense", "3_Dense"}) {
      if (fs::exists(model / stage)) fs::copy(model / stage, folder_.path() / stage, fs::copy_options::recursive);
    }
  }
  std::string path() const { return folder_.path().string(); }

 private:
  platform::testing::CpuContext cpu_;
  choral::testing::TempDir folder_;
};

// Log-probabilities of a text of random tokens, and of what follows.
std::vector<double> logprobs_of(const std::string& model) {
  EngineOptions options = tiny_options();
  options.model = model;
  options.dtype = options.kv_cache_dtype = "float32";
  const auto llm = engine::load_or_die(options);
  std::vector<double> out;
  if (llm == nullptr) return out;
  auto request = engine::greedy_request(engine::random_prompt(60, 7), 6);
  request.sampling.prompt_logprobs = 1;
  const auto answer = llm->generate({request}).front();
  EXPECT_TRUE(answer.status.ok()) << answer.status.to_string();
  for (const auto& token : answer.prompt_logprobs) out.push_back(token.chosen.logprob);
  if (!answer.completions.empty()) {
    for (const auto& token : answer.completions[0].logprobs) out.push_back(token.chosen.logprob);
  }
  return out;
}

Status write(const std::string& model, const std::string& out, const std::vector<std::string>& ignore) {
  CHORAL_TRY(const auto quantizer,
             CheckpointQuantizer::open(
                 {.model = model, .out = out, .scheme = "q8_0", .format = "gguf", .ignore = ignore, .threads = 2}));
  return quantizer->write().status();
}

class GgufFamily : public ::testing::TestWithParam<Family> {};

TEST_P(GgufFamily, TheFileAnswersAsTheFolder) {
  const ExactModel model(GetParam());
  const choral::testing::TempDir dir;
  const auto written = write(model.path(), dir / "m.gguf", GetParam().ignore);
  ASSERT_TRUE(written.ok()) << written.to_string();
  const auto wanted = logprobs_of(model.path()), found = logprobs_of(dir / "m.gguf");
  ASSERT_GE(wanted.size(), 65u);
  ASSERT_EQ(found.size(), wanted.size());
  // Numbers differ where GGUF has another form for them, by the rounding of a float32: 1 + w, factors of frequencies.
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(All, GgufFamily, ::testing::ValuesIn(families()), [](const auto& test) {
  std::string name = test.param.model;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Tiny models as they are, of which GGUF cannot say all.
TEST(GgufFamilies, WhatGgufCannotSayIsRefusedByItsName) {
  const choral::testing::TempDir dir;
  struct Refused {
    const char* model;
    const char* why;
  };
  const Refused refused[] = {
      {"gemma2", "its attention_scale is"},
      {"gemma3", "its sliding_window.2 is 0, and readers would take it for 16"},
      {"gpt-oss", "its moe.swiglu.limit is 1.25, and readers would take it for 7"},
      {"mistral", "its sliding_window.0 is 16, and readers would take it for 0"},
  };
  for (const auto& [model, why] : refused) {
    const auto status = write(tiny_options(std::string("tiny-") + model).model, dir / "m.gguf", {});
    EXPECT_EQ(status.code(), Code::kUnsupported) << model;
    EXPECT_THAT(status.message(), HasSubstr(why)) << model;
  }
  const auto reranker = choral::testing::test_data("/pooled/reranker");
  EXPECT_THAT(write(reranker, dir / "m.gguf", {}).message(), HasSubstr("LlamaForSequenceClassification: GGUF has no"));
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

// Without the last of the stages that modules.json lists.
void drop_last_stage(const fs::path& model) {
  std::ifstream in(model / "modules.json");
  auto stages = Json::parse(in);
  std::erase_if(stages.get_ref<Json::array_t&>(), [](const Json& stage) { return stage["path"] == "3_Dense"; });
  std::ofstream(model / "modules.json") << stages;
}

// By the mean of hidden states that see each other, before a dense layer; and by the last one.
TEST(GgufFamilies, EmbeddersGiveTheFoldersVectors) {
  const char* const windows = R"({"layer_types": ["sliding_attention", "sliding_attention", "sliding_attention"]})";  // one a six
  for (const auto& [name, changes] : {std::pair("embedder", windows), std::pair("last_token", "{}")}) {
    SCOPED_TRACE(name);
    const ExactModel model(choral::testing::test_data(std::string("/pooled/") + name), Family{name, changes});
    const choral::testing::TempDir dir;
    if (name == std::string("embedder")) {
      EXPECT_THAT(write(model.path(), dir / "m.gguf", {}).message(), HasSubstr("its embedding_layers.1.bias is 1"));
      drop_last_stage(model.path());
    }
    const auto written = write(model.path(), dir / "m.gguf", {});
    ASSERT_TRUE(written.ok()) << written.to_string();
    const auto vector_of = [](const std::string& path) {
      EngineOptions options = tiny_options();
      options.model = path;
      options.dtype = options.kv_cache_dtype = "float32";
      const auto llm = engine::load_or_die(options);
      if (llm == nullptr) return std::vector<float>();
      Request request{.prompt_token_ids = engine::random_prompt(30, 3)};
      request.embedding = true;
      const auto answer = llm->generate({request}).front();
      EXPECT_TRUE(answer.status.ok()) << answer.status.to_string();
      return answer.embedding;
    };
    const auto wanted = vector_of(model.path()), found = vector_of(dir / "m.gguf");
    ASSERT_GE(wanted.size(), 32u);
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-5) << i;
  }
}

// A model that is added to tests/data is written, or said here not to be.
TEST(GgufFamilies, NoTinyModelIsForgotten) {
  std::vector<std::string> known{"deepseek-v32", "mistral4"};
  for (const auto& family : families()) known.push_back(family.model);
  for (const auto& entry : fs::directory_iterator(fs::path(tiny_options().model).parent_path())) {
    const auto name = entry.path().filename().string();
    EXPECT_THAT(known, ::testing::Contains(name.substr(std::string("tiny-").size())));
  }
}

}  // namespace
}  // namespace choral::tools
