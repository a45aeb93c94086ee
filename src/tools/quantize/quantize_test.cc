// What is written answers to the bit as --quantization of the same name, in every scheme and format.
#include "tools/quantize.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "engine/tiny_model_test.h"
#include "io/checkpoint.h"
#include "io/mapped_file.h"
#include "io/safetensors_writer.h"
#include "quant/quant_config.h"
#include "quant/rounded_weight.h"
#include "support/temp_dir.h"
#include "support/test_paths.h"
#include "tensor/tensor.h"

namespace choral::tools {
namespace {

using engine::expect_same_bits;
using engine::load_or_die;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string tiny(const std::string& model = "tiny-llama3") { return engine::tiny_options(model).model; }

QuantizeOptions wanted(const std::string& model, const fs::path& out, const std::string& scheme,
                       const std::string& format = "compressed-tensors") {
  return {.model = model, .out = out.string(), .scheme = scheme, .format = format, .threads = 2};
}

Result<QuantizeReport> quantize(const QuantizeOptions& options) {
  CHORAL_TRY(const auto quantizer, CheckpointQuantizer::open(options));
  return quantizer->write();
}

RequestOutput answer(const std::string& model, const std::string& quantization = "auto") {
  EngineOptions options;
  options.model = model;
  options.threads = 2;
  options.quantization = quantization;
  const auto llm = load_or_die(options);
  return llm == nullptr ? RequestOutput{} : llm->generate({engine::greedy_request(engine::random_prompt(40, 7), 8)}).front();
}

std::string read(const fs::path& path) { return *io::read_whole_file(path, 1 << 24); }

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  return names;
}

// tiny-llama3 with an MLP of another width: 64, as wide as its hidden state, so that all layers have one size of groups; or 80,
// which no size of groups divides.
class NarrowModel {
 public:
  explicit NarrowModel(int64_t width = 64) {
    const auto source = *io::Checkpoint::open(tiny());
    std::vector<io::TensorToWrite> all;
    for (const auto& name : source->names()) {
      auto view = source->find(name)->view;
      // The first so many of its random numbers.
      if (name.find(".mlp.") != name.npos) view.shape = name.ends_with("down_proj.weight") ? Shape{64, width} : Shape{width, 64};
      all.push_back({name, view});
    }
    CHORAL_CHECK(io::write_safetensors(folder_ / "model.safetensors", all).ok(), "the checkpoint is written");
    auto config = Json::parse(read(fs::path(tiny()) / "config.json"));
    config["intermediate_size"] = width;
    folder_.write("config.json", config.dump());
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) fs::copy(fs::path(tiny()) / file, folder_.path());
  }
  std::string path() const { return folder_.path().string(); }

 private:
  choral::testing::TempDir folder_;
};

TEST(Quantize, CompressedTensorsAnswerAsInFlightToTheBit) {
  for (const char* model : {"tiny-llama3", "tiny-qwen2"}) {
    for (const std::string& scheme : quant::in_flight_names()) {
      SCOPED_TRACE(std::string(model) + " " + scheme);
      const choral::testing::TempDir dir;
      const auto report = quantize(wanted(tiny(model), dir.path() / "out", scheme));
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_LT(report->bytes_after, report->bytes_before);
      EXPECT_EQ(report->quantised_layers % 7, 0);
      EXPECT_EQ(report->float_layers, 0);
      expect_same_bits(answer(dir / "out"), answer(tiny(model), scheme));
    }
  }
}

// Pooling and the layers behind it go along.
TEST(Quantize, AnEmbedderGivesTheVectorsThatItGivesInFlight) {
  const std::string model = (fs::path(choral::testing::test_data()) / "pooled/embedder").string();
  const auto vector = [](const std::string& path, const std::string& quantization) {
    const auto llm = LLM::load({.model = path, .quantization = quantization, .threads = 2});
    EXPECT_TRUE(llm.ok()) << llm.status().to_string();
    return (*llm)->generate({Request{.prompt_token_ids = {5, 6, 7, 8}, .embedding = true}}).front().embedding;
  };
  const choral::testing::TempDir dir;
  const auto report = quantize(wanted(model, dir.path() / "out", "w8a16"));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const auto stored = vector((dir.path() / "out").string(), "auto");
  EXPECT_EQ(stored.size(), 24U);
  EXPECT_EQ(stored, vector(model, "w8a16"));
  EXPECT_NE(stored, vector(model, "auto"));
}

TEST(Quantize, ModelSlimAnswersAsInFlightToTheBit) {
  const NarrowModel narrow;
  for (const char* scheme : {"w8a8_dynamic", "w8a16", "w4a16", "w4a8_dynamic"}) {
    SCOPED_TRACE(scheme);
    const choral::testing::TempDir dir;
    const auto report = quantize(wanted(narrow.path(), dir.path() / "out", scheme, "modelslim"));
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(read(dir / "out/config.json"), read(narrow.path() + "/config.json"));
    const auto said = Json::parse(read(dir / "out/quant_model_description.json"));
    EXPECT_EQ(said["lm_head.weight"], "FLOAT");
    EXPECT_NE(said["model.layers.0.mlp.up_proj.weight"], "FLOAT");
    expect_same_bits(answer(dir / "out"), answer(narrow.path(), scheme));
  }
}

TEST(Quantize, WeightsTakeTheBytesOfTheirScheme) {
  const NarrowModel narrow;
  const choral::testing::TempDir dir;
  const struct {
    const char *scheme, *format, *tensor;
    DType type;
    Shape shape;
  } cases[] = {{"w8a8_dynamic", "compressed-tensors", "weight", DType::kI8, {64, 64}},
               {"w8a16", "compressed-tensors", "weight_packed", DType::kI32, {64, 16}},
               {"w4a16", "compressed-tensors", "weight_packed", DType::kI32, {64, 8}},
               {"w4a8_dynamic", "compressed-tensors", "weight", DType::kI8, {64, 64}},
               {"fp8", "compressed-tensors", "weight", DType::kF8E4M3, {64, 64}},
               {"w8a16", "modelslim", "weight", DType::kI8, {64, 64}},
               {"w4a8_dynamic", "modelslim", "weight", DType::kI8, {32, 64}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.scheme) + " " + c.format);
    const auto out = dir.path() / (std::string(c.scheme) + c.format);
    ASSERT_TRUE(quantize(wanted(narrow.path(), out, c.scheme, c.format)).ok());
    const auto written = *io::Checkpoint::open(out), source = *io::Checkpoint::open(narrow.path());
    const auto weight = written->find(std::string("model.layers.0.mlp.up_proj.") + c.tensor);
    ASSERT_TRUE(weight.ok()) << weight.status().to_string();
    EXPECT_EQ(weight->view.dtype, c.type);
    EXPECT_EQ(weight->view.shape, c.shape);
    EXPECT_EQ(written->find("model.layers.0.mlp.up_proj.weight_scale")->view.dtype, DType::kF32);
    // The rest is as it was.
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"}) {
      const auto was = source->find(name)->view, is = written->find(name)->view;
      ASSERT_EQ(is.dtype, was.dtype);
      ASSERT_EQ(is.size_bytes(), was.size_bytes());
      EXPECT_EQ(std::memcmp(is.data, was.data, static_cast<size_t>(was.size_bytes())), 0) << name;
    }
  }
}

TEST(Quantize, EachSizeOfGroupsIsAConfigGroup) {
  const choral::testing::TempDir dir;
  ASSERT_TRUE(quantize(wanted(tiny(), dir.path() / "out", "w4a16")).ok());
  const auto groups = Json::parse(read(dir / "out/config.json"))["quantization_config"]["config_groups"];
  const int64_t of_most = quant::rounded_group_size(4, 64), of_down = quant::rounded_group_size(4, 128);
  const std::string last = of_most == of_down ? "group_0" : "group_1";
  EXPECT_EQ(groups.size(), of_most == of_down ? 1u : 2u);
  EXPECT_EQ(groups[last]["targets"], Json{"Linear"});
  EXPECT_EQ(groups[last]["weights"]["group_size"], of_most);
  const auto refused = quantize(wanted(tiny(), dir.path() / "other", "w4a16", "modelslim")).status();  // which has one for all
  EXPECT_EQ(refused.ok(), of_most == of_down);
  if (refused.ok()) return;
  for (const auto& target : groups["group_0"]["targets"]) EXPECT_THAT(target, EndsWith(".mlp.down_proj"));
  EXPECT_EQ(groups["group_0"]["weights"]["group_size"], of_down);
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("down_proj (k 128) needs groups of"), HasSubstr("(k 64) needs groups of")));
  EXPECT_FALSE(fs::exists(dir.path() / "other"));
}

// What machines want that multiply halves of 4 bits; the reader holds it to the weights.
TEST(Quantize, ModelSlimsScaleBiasIsInPartsWhereKMayBeDivided) {
  const NarrowModel narrow;
  const choral::testing::TempDir dir;
  ASSERT_TRUE(quantize(wanted(narrow.path(), dir.path() / "out", "w4a8_dynamic", "modelslim")).ok());
  const auto written = *io::Checkpoint::open(dir / "out");
  const auto shape = [&](const char* layer) {
    return written->find(fmt::format("model.layers.0.{}.scale_bias", layer))->view.shape;
  };
  EXPECT_EQ(shape("mlp.down_proj"), (Shape{64, 16}));
  EXPECT_EQ(shape("self_attn.o_proj"), (Shape{64, 16}));
  EXPECT_EQ(shape("mlp.up_proj"), (Shape{64, 1}));
  EXPECT_EQ(shape("self_attn.k_proj"), (Shape{32, 1}));
  EXPECT_TRUE(answer(dir / "out").status.ok());
}

// 80 columns: two whole blocks of 32 and a half.
TEST(Quantize, LayersOfAnyWidthAreWritten) {
  const NarrowModel model(80);
  for (const std::string& scheme : quant::in_flight_names()) {
    SCOPED_TRACE(scheme);
    const choral::testing::TempDir dir;
    const auto report = quantize(wanted(model.path(), dir.path() / "out", scheme));
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->float_layers, 0);
    expect_same_bits(answer(dir / "out"), answer(model.path(), scheme));
  }
  const choral::testing::TempDir dir;
  const auto gguf = quantize(wanted(model.path(), dir.path() / "out.gguf", "q8_0", "gguf")).status();
  EXPECT_EQ(gguf.code(), Code::kUnsupported);
  EXPECT_THAT(gguf.message(), AllOf(HasSubstr("layers.0.mlp.down_proj has 80 columns"), HasSubstr("--ignore")));
}

TEST(Quantize, IgnoredLayersStayFloat) {
  for (const char* format : {"compressed-tensors", "modelslim"}) {
    SCOPED_TRACE(format);
    const choral::testing::TempDir dir;
    auto options = wanted(tiny(), dir.path() / "out", "w4a16", format);
    options.ignore = {R"(.*\.down_proj)"};
    const auto report = quantize(options);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->float_layers * 6, report->quantised_layers);
    const auto weight = (*io::Checkpoint::open(dir / "out"))->find("model.layers.0.mlp.down_proj.weight");
    EXPECT_TRUE(weight.ok()) << weight.status().to_string();
    EXPECT_TRUE(answer(dir / "out").status.ok());
  }
  const choral::testing::TempDir dir;
  auto options = wanted(tiny(), dir.path() / "out", "fp8");
  options.ignore = {".*q_proj"};
  EXPECT_THAT(quantize(options).status().message(), HasSubstr("are computed as one matrix"));
  options.ignore = {"down_proj"};
  EXPECT_THAT(quantize(options).status().message(), HasSubstr("--ignore down_proj is the name of no linear layer"));
  options.ignore = {".*_proj"};
  EXPECT_THAT(quantize(options).status().message(), HasSubstr("leaves no layer"));
  EXPECT_THAT(files_in(dir.path()), IsEmpty());
}

TEST(Quantize, LargeModelsAreWrittenInShards) {
  const choral::testing::TempDir dir;
  auto options = wanted(tiny(), dir.path() / "out", "w8a8_dynamic");
  options.max_shard_bytes = 300'000;
  const auto report = quantize(options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_GT(report->weight_files, 2u);
  EXPECT_THAT(files_in(dir.path() / "out"), Contains("model.safetensors.index.json"));
  expect_same_bits(answer(dir / "out"), answer(tiny(), "w8a8_dynamic"));
}

TEST(Quantize, WhatIsNoFloatCheckpointIsRefused) {
  const choral::testing::TempDir dir;
  const auto out = dir.path() / "out";
  ASSERT_TRUE(quantize(wanted(tiny(), out, "w8a16")).ok());
  const auto again = quantize(wanted(out.string(), dir.path() / "again", "w8a16")).status();
  EXPECT_EQ(again.code(), Code::kInvalidArgument);
  EXPECT_THAT(again.message(), HasSubstr("quantised already, by compressed-tensors"));
  const NarrowModel narrow;
  ASSERT_TRUE(quantize(wanted(narrow.path(), dir.path() / "slim", "w8a16", "modelslim")).ok());
  EXPECT_THAT(quantize(wanted(dir / "slim", dir.path() / "again", "w8a16")).status().message(),
              HasSubstr("quantised already, by modelslim"));
  const auto gguf =
      quantize(wanted(dir.write("x.gguf", std::string("GGUF\3\0\0\0", 8) + std::string(16, '\0')), dir.path() / "again", "w8a16"))
          .status();
  EXPECT_EQ(gguf.code(), Code::kUnsupported);
  EXPECT_THAT(gguf.message(), HasSubstr("is a GGUF file"));
  EXPECT_EQ(quantize(wanted("/no/such/model", dir.path() / "again", "w8a16")).status().code(), Code::kNotFound);
  EXPECT_FALSE(fs::exists(dir.path() / "again"));
}

TEST(Quantize, UnknownNamesListTheKnownOnes) {
  const auto error = [](const char* scheme, const char* format) {
    return quantize(wanted(tiny(), "/no/such/folder", scheme, format)).status();
  };
  EXPECT_THAT(error("w2a2", "compressed-tensors").message(),
              HasSubstr("--scheme w2a2: choose w8a8_dynamic, w8a8, w8a16, w4a16, w4a8_dynamic, fp8"));
  EXPECT_THAT(error("fp8", "modelslim").message(), HasSubstr("--scheme fp8: modelslim has no such scheme; choose w8a8_dynamic"));
  EXPECT_THAT(error("fp8", "awq").message(), HasSubstr("--format awq: choose compressed-tensors, modelslim or gguf"));
}

TEST(Quantize, AWeightThatIsNoNumberLeavesNothingBehind) {
  const NarrowModel narrow;
  const choral::testing::TempDir dir;
  auto bad = *Tensor::allocate(DType::kF32, {64, 64});
  bad.as<float>()[3 * 64 + 5] = NAN;
  const auto source = *io::Checkpoint::open(narrow.path());
  std::vector<io::TensorToWrite> all;
  for (const auto& name : source->names()) {
    all.push_back({name, name.ends_with("1.mlp.up_proj.weight") ? bad.view() : source->find(name)->view});
  }
  fs::copy(narrow.path(), dir.path() / "bad");
  ASSERT_TRUE(io::write_safetensors(dir.path() / "bad/model.safetensors", all).ok());
  for (const std::string& scheme : quant::in_flight_names()) {
    const auto status = quantize(wanted(dir / "bad", dir.path() / "out", scheme)).status();
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("model.layers.1.mlp.up_proj.weight: row 3 holds a NaN or an infinity"));
    EXPECT_THAT(files_in(dir.path()), UnorderedElementsAre("bad"));
  }
}

TEST(Quantize, TheModelItselfIsNotReplaced) {
  const choral::testing::TempDir dir;
  fs::create_directory(dir.path() / "outer");
  fs::copy(tiny(), dir.path() / "outer/model", fs::copy_options::recursive);
  fs::create_directory_symlink(dir.path() / "outer", dir.path() / "link");
  dir.write("outer/config.json", "{}");
  for (const char* out : {"outer/model", "outer", "link", "outer/model/", "outer/../outer/model/."}) {
    SCOPED_TRACE(out);
    auto options = wanted(dir / "outer/model", dir.path() / out, "fp8");
    options.force = true;
    EXPECT_THAT(quantize(options).status().message(), HasSubstr("is where the model"));
  }
  EXPECT_TRUE(fs::exists(dir.path() / "outer/model/config.json"));
}

}  // namespace
}  // namespace choral::tools
