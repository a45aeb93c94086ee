// What `--format gguf` writes holds the model's own numbers in GGUF's blocks and names, and answers without the folder.
#include "tools/quantize/gguf_quantizer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/model_loader.h"
#include "engine/tiny_model_test.h"
#include "io/checkpoint.h"
#include "io/model_config.h"
#include "kernels/quant/dequantise.h"
#include "kernels/quant/quantise_blocks.h"
#include "support/temp_dir.h"
#include "tensor/tensor.h"
#include "tools/evaluation.h"

namespace choral::tools {
namespace {

using engine::load_or_die;
using engine::tiny_options;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

QuantizeOptions wanted(const std::string& model, const std::string& out, const std::string& scheme) {
  return {.model = model, .out = out, .scheme = scheme, .format = "gguf", .threads = 2};
}

Result<QuantizeReport> quantize(const QuantizeOptions& options) {
  CHORAL_TRY(const auto quantizer, CheckpointQuantizer::open(options));
  return quantizer->write();
}

std::vector<float> row_of(const TensorView& view, int64_t row) {
  std::vector<float> x(view.cols());
  kernels::dequantise_row(view.dtype, view.row(row), view.cols(), x.data());
  return x;
}

// `row` of the source as blocks of `type` hold it.
std::vector<float> rounded(const TensorView& view, int64_t row, DType type) {
  auto x = row_of(view, row);
  if (!facts(type).is_block) return x;
  std::vector<std::byte> blocks(row_bytes(type, view.cols()));
  kernels::quantise_row(type, x.data(), view.cols(), blocks.data());
  kernels::dequantise_row(type, blocks.data(), view.cols(), x.data());
  return x;
}

class GgufModel : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufModel, HoldsTheModelsNumbers) {
  const auto model = tiny_options(GetParam()).model;
  const auto source = *io::Checkpoint::open(model);
  const auto by_row = [](const std::string& name) { return name == "model.embed_tokens.weight" || name == "lm_head.weight"; };
  const auto is_linear = [&](const std::string& name) { return !by_row(name) && source->find(name)->view.shape.rank() == 2; };
  for (const auto& [scheme, type] :
       {std::pair("q8_0", DType::kQ8_0), std::pair("q4_0", DType::kQ4_0), std::pair("q4_1", DType::kQ4_1)}) {
    SCOPED_TRACE(scheme);
    const choral::testing::TempDir dir;
    const auto report = quantize(wanted(model, dir / "out.gguf", scheme));
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->quantised_layers, std::count_if(source->names().begin(), source->names().end(), is_linear));
    EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
    const auto written = *io::Checkpoint::open(dir / "out.gguf");
    for (const auto& name : source->names()) {
      SCOPED_TRACE(name);
      const auto was = source->find(name)->view;
      const auto is = written->find(name);
      ASSERT_TRUE(is.ok()) << is.status().to_string();
      const DType wanted_type = by_row(name) ? DType::kQ8_0 : was.shape.rank() == 2 ? type : DType::kF32;
      ASSERT_EQ(is->view.dtype, wanted_type);
      ASSERT_EQ(is->view.shape, was.shape);
      if (was.shape.rank() == 1) {
        const auto x = row_of(is->view, 0), y = row_of(was, 0);
        for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[is->row_order.empty() ? i : is->row_order[i]], y[i]);
        continue;
      }
      for (int64_t r = 0; r < was.rows(); ++r) {
        const int64_t stored = is->row_order.empty() ? r : is->row_order[r];
        ASSERT_EQ(row_of(is->view, stored), rounded(was, r, wanted_type)) << "row " << r;
      }
    }
  }
}

TEST_P(GgufModel, AnswersWithoutTheFolder) {
  const auto folder = tiny_options(GetParam());
  const choral::testing::TempDir dir;
  ASSERT_TRUE(quantize(wanted(folder.model, dir / "out.gguf", "q8_0")).ok());
  EngineOptions file = folder;
  file.model = dir / "out.gguf";
  const auto original = *engine::open_model_files(folder), written = *engine::open_model_files(file);
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                          "vocab_size", "max_position_embeddings"}) {
    EXPECT_EQ(*written.config.get_int(key), *original.config.get_int(key)) << key;
  }
  EXPECT_EQ(*written.config.get_double("rms_norm_eps"), *original.config.get_double("rms_norm_eps"));
  EXPECT_EQ(*written.config.get_double("rope_theta"), *original.config.get_double("rope_theta"));
  EXPECT_EQ(*written.config.get_bool("tie_word_embeddings"), *original.config.get_bool("tie_word_embeddings"));
  EXPECT_EQ(engine::architecture_of(written.config), engine::architecture_of(original.config));
  ASSERT_EQ(written.chat_templates.size(), original.chat_templates.size());
  for (size_t i = 0; i < original.chat_templates.size(); ++i) {
    EXPECT_EQ(written.chat_templates[i].name, original.chat_templates[i].name);
    EXPECT_EQ(written.chat_templates[i].source, original.chat_templates[i].source);
  }
  const std::string text = "The model <|im_start|>reads 1234567 Überraschungen; it's 99 % \u4f60\u597d\n\n";
  EXPECT_EQ(*written.tokenizer->encode(text), *original.tokenizer->encode(text));
  const auto ends = [](const engine::ModelFiles& files) {
    const auto& said = files.generation_config.contains("eos_token_id") ? files.generation_config : files.config;
    auto ids = *said.get_int_or_ints("eos_token_id");
    std::ranges::sort(ids);
    return ids;
  };
  EXPECT_EQ(ends(written), ends(original));

  EvaluationOptions options{.text = {}, .text_name = "text", .window_tokens = 128};
  for (int i = 0; i < 60; ++i) options.text += fmt::format("Item {} of 60: {} apples.\n", i, i * 37 % 101);
  options.measured.engine = file;
  options.reference = EvaluatedModel{.engine = folder};
  const auto report = evaluate(options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_LT(mean_of(report->reference->divergences).value, 0.02);  // eight bits of W, in embedding and head too
}

INSTANTIATE_TEST_SUITE_P(All, GgufModel,
                         ::testing::Values("tiny-llama3", "tiny-qwen2", "tiny-qwen3", "tiny-granite", "tiny-smollm3"),
                         [](const auto& test) { return std::string(test.param).substr(5); });

// A repository as the hub has them: tokenizer.json beside GGUF files.
TEST(GgufQuantizer, AFolderIsReadByItsTokenizerJsonWhateverStandsBeside) {
  const choral::testing::TempDir dir;
  const EngineOptions tiny = tiny_options();
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    fs::copy(fs::path(tiny.model) / file, dir.path() / file);
  }
  dir.write("chat_template.jinja", "the folder's");
  ASSERT_TRUE(quantize(wanted(tiny.model, dir / "a.gguf", "q8_0")).ok());
  const auto template_of = [](const EngineOptions& options) -> std::string {
    const auto files = engine::open_model_files(options);
    return files.ok() ? files->chat_templates.at(0).source : std::string(files.status().message());
  };
  EngineOptions folder = tiny;
  folder.model = dir.path().string();
  EXPECT_EQ(template_of(folder), "the folder's");
  fs::copy(dir / "a.gguf", dir / "b.gguf");
  EngineOptions named = tiny;
  named.tokenizer = dir.path().string();
  EXPECT_EQ(template_of(named), "the folder's");
  named.tokenizer = dir / "b.gguf";
  EXPECT_NE(template_of(named), "the folder's");
}

TEST(GgufQuantizer, IgnoredLayersStayAsStored) {
  const choral::testing::TempDir dir;
  auto options = wanted(tiny_options().model, dir / "out.gguf", "q4_0");
  options.ignore = {".*down_proj"};
  ASSERT_TRUE(quantize(options).ok());
  EXPECT_EQ((*io::Checkpoint::open(options.out))->find("model.layers.0.mlp.down_proj.weight")->view.dtype, DType::kBF16);
  EngineOptions engine = tiny_options();
  engine.model = options.out;
  EXPECT_NE(load_or_die(engine), nullptr);
}

TEST(GgufQuantizer, OneFileIsMadeAndNoneLost) {
  const choral::testing::TempDir dir;
  const auto model = tiny_options().model;
  const auto error = [&](const std::string& out) { return quantize(wanted(model, out, "q8_0")).status().message(); };
  EXPECT_THAT(error(dir / "out"), HasSubstr("--format gguf writes one file; name it *.gguf"));
  EXPECT_THAT(error(dir / "no/out.gguf"), HasSubstr("which is no folder; make that first"));
  fs::create_directory(dir / "folder.gguf");
  EXPECT_THAT(error(dir / "folder.gguf"), HasSubstr("is there and is no file"));
  dir.write("there.gguf", "old");
  EXPECT_THAT(error(dir / "there.gguf"), HasSubstr("replace it with --force"));
  auto options = wanted(model, dir / "there.gguf", "q8_0");
  options.force = true;
  EXPECT_TRUE(quantize(options).ok());
  EXPECT_GT(fs::file_size(dir / "there.gguf"), 100'000u);
  EXPECT_FALSE(fs::exists(dir / "there.gguf.part"));
}

TEST(GgufQuantizer, WhatGgufCannotSayIsRefused) {
  const choral::testing::TempDir dir;
  const auto changed = [&](const char* key, const nlohmann::json& value, const char* model = "tiny-llama3") {
    const auto folder = dir.path() / key;
    fs::copy(tiny_options(model).model, folder);
    std::ifstream in(folder / "config.json");
    auto config = nlohmann::json::parse(in);
    config[key] = value;
    fs::remove(folder / "generation_config.json");
    std::ofstream(folder / "config.json") << config;
    return quantize(wanted(folder.string(), dir / "out.gguf", "q8_0")).status().message();
  };
  EXPECT_THAT(changed("rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}),
              HasSubstr("its rotary.depends_on_length is 1, and readers would take it for 0"));
  EXPECT_THAT(changed("eos_token_id", {1, 2, 3, 4}), HasSubstr("4 tokens; GGUF has names for 3"));
  EXPECT_THAT(changed("no_rope_layers", {1, 0, 1, 0}, "tiny-smollm3"),
              HasSubstr("its rotates.1 is 0, and readers would take it for 1"));
  EXPECT_THAT(changed("vocab_size", 4095), HasSubstr("has 4096 rows, but"));
  const auto error = quantize(wanted(tiny_options().model, dir / "out.gguf", "w4a16")).status().message();
  EXPECT_THAT(error, HasSubstr("--scheme w4a16: gguf has no such scheme; choose q8_0, q4_0, q4_1"));
  EXPECT_FALSE(fs::exists(dir / "out.gguf"));
}

}  // namespace
}  // namespace choral::tools
