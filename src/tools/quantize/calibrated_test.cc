// w8a8: what the scales of activations are found on, that they are those of the model's own inputs, and that what was written
// answers as the model does.
#include <gmock/gmock.h>

#include <cmath>

#include "io/config_map.h"
#include "io/model_config.h"
#include "io/safetensors_writer.h"
#include "support/temp_dir.h"
#include "tensor/tensor.h"
#include "tools/evaluation.h"
#include "tools/quantize.h"
#include "tools/quantize/linear_formula_test.h"

namespace choral::tools {
namespace {

using engine::load_or_die;
using engine::tiny_options;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string text_of(int items) {
  std::string text;
  for (int i = 0; i < items; ++i) text += fmt::format("Item {} of {}: {} Äpfel.\n", i, items, i * 37 % 101);
  return text;
}

QuantizeOptions wanted(const std::string& model, const fs::path& out, const std::string& format) {
  return {.model = model,
          .out = out.string(),
          .scheme = "w8a8",
          .format = format,
          .calibration = CalibrationText{.text = text_of(60), .name = "items.txt", .window_tokens = 128},
          .threads = 2};
}

Result<QuantizeReport> quantize(const QuantizeOptions& options) {
  CHORAL_TRY(const auto quantizer, CheckpointQuantizer::open(options));
  return quantizer->write();
}

// The mean divergence of `measured` from `reference` over the text.
double divergence(const EngineOptions& measured, const EngineOptions& reference) {
  EvaluationOptions options{.text = text_of(80), .text_name = "items.txt", .window_tokens = 128};
  options.measured.engine = measured;
  options.reference = EvaluatedModel{.engine = reference};
  const auto report = evaluate(options);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return report.ok() ? mean_of(report->reference->divergences).value : INFINITY;
}

// The first layer's attention is given norm(embedding), which is known without a model.
TEST(CalibratedScheme, ScalesAreOfWhatTheLayersWereGiven) {
  const auto model = tiny_options("tiny-llama3").model;
  const choral::testing::TempDir dir;
  const auto options = wanted(model, dir.path() / "out", "compressed-tensors");
  const auto report = quantize(options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const auto source = *io::Checkpoint::open(model), written = *io::Checkpoint::open(dir.path() / "out");
  const auto embedding = floats_of(*source, "model.embed_tokens.weight");
  const auto gain = floats_of(*source, "model.layers.0.input_layernorm.weight");
  const double eps = *(*io::load_model_config(model)).get_double("rms_norm_eps");
  const auto llm = load_or_die(tiny_options("tiny-llama3"));
  const auto tokens = *llm->tokenize(options.calibration->text, true);  // with the one in front, which each window has
  EXPECT_EQ(report->calibration_tokens, std::ssize(tokens) - 1);
  double farthest = 0;
  for (const int32_t token : tokens) {
    const auto row = std::span(embedding).subspan(token * gain.size(), gain.size());
    double sum = 0;
    for (const float v : row) sum += static_cast<double>(v) * v;
    const double factor = 1 / std::sqrt(sum / static_cast<double>(gain.size()) + eps);
    for (size_t i = 0; i < gain.size(); ++i) farthest = std::max(farthest, std::abs(row[i] * factor * gain[i]));
  }
  for (const char* member : {"q_proj", "k_proj", "v_proj"}) {
    const auto scale = floats_of(*written, fmt::format("model.layers.0.self_attn.{}.input_scale", member));
    ASSERT_EQ(scale.size(), 1u);
    EXPECT_NEAR(scale[0], farthest / 127, 1e-5 * farthest / 127) << member;
  }
  EXPECT_EQ(written->find("model.layers.0.self_attn.q_proj.input_scale")->view.shape, Shape{1});
  EXPECT_FALSE(written->contains("lm_head.input_scale"));
}

// Each layer as its scales and integers in float64 say, and so the model. What is left between the answers: values that lie on
// the border of two integers and fall to the other side by the last bit of a float32 sum.
TEST(CalibratedScheme, AnswersAsItsScalesAndIntegersInFloat64) {
  for (const char* model : {"tiny-llama3", "tiny-qwen2", "tiny-mistral"}) {
    for (const char* format : {"compressed-tensors", "modelslim"}) {
      SCOPED_TRACE(std::string(model) + " " + format);
      const choral::testing::TempDir dir;
      const auto source = tiny_options(model).model;
      const auto report = quantize(wanted(source, dir.path() / "out", format));
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      auto fixed = tiny_options(model);
      fixed.model = dir / "out";
      fixed.kv_cache_dtype = "float32";  // so that sums' last bits are all that differs
      auto compared = formula_of_w8a8(source, fixed.model), computing = formula_of_w8a8(source, fixed.model);
      computing.stand_in();
      const double rounding = divergence(fixed, tiny_options(model));
      const double off = divergence(held_to(compared, fixed), held_to(computing, fixed));
      EXPECT_GT(compared.outputs(), 0);
      EXPECT_LE(compared.farthest(), 1) << compared.farthest_place();
      EXPECT_LT(off, 0.02 * rounding);
    }
  }
}

// y = (Σ q_x q_w + quant_bias) · deq_scale, where quant_bias holds bias and offset.
TEST(CalibratedScheme, ModelSlimsStepsAreThoseOfScaleOffsetAndBias) {
  for (const char* model : {"tiny-qwen2", "tiny-mistral"}) {  // with biases; of float16, where deq_scale is the bits of a float
    SCOPED_TRACE(model);
    const auto path = tiny_options(model).model;
    const choral::testing::TempDir dir;
    ASSERT_TRUE(quantize(wanted(path, dir.path() / "out", "modelslim")).ok());
    const auto source = *io::Checkpoint::open(path), written = *io::Checkpoint::open(dir.path() / "out");
    for (const std::string layer : {"model.layers.1.self_attn.k_proj", "model.layers.2.mlp.down_proj"}) {
      const auto part = [&](const char* name) { return written->find(layer + "." + name)->view; };
      const auto weight = part("weight");
      const auto scales = floats_of(*written, layer + ".weight_scale");
      const float x_scale = floats_of(*written, layer + ".input_scale")[0];
      const float offset = floats_of(*written, layer + ".input_offset")[0];
      EXPECT_EQ(offset, std::rint(offset));
      const bool has_bias = source->contains(layer + ".bias");
      EXPECT_EQ(has_bias, model == std::string("tiny-qwen2") && layer.ends_with("k_proj"));
      const auto bias = has_bias ? floats_of(*source, layer + ".bias") : std::vector<float>(weight.rows());
      ASSERT_EQ(part("deq_scale").dtype, model == std::string("tiny-mistral") ? DType::kI64 : DType::kF32);
      for (int64_t r = 0; r < weight.rows(); ++r) {
        const float wanted_scale = x_scale * scales[r];
        float stored;
        std::memcpy(&stored, part("deq_scale").data + r * row_bytes(part("deq_scale").dtype, 1), sizeof stored);
        ASSERT_EQ(stored, wanted_scale);
        int64_t sum = 0;
        for (int64_t k = 0; k < weight.cols(); ++k) sum += reinterpret_cast<const int8_t*>(weight.row(r))[k];
        int32_t quant_bias;
        std::memcpy(&quant_bias, part("quant_bias").data + r * sizeof quant_bias, sizeof quant_bias);
        EXPECT_EQ(quant_bias, std::rint(static_cast<double>(bias[r]) / wanted_scale) - offset * static_cast<double>(sum));
      }
    }
  }
}

TEST(CalibratedScheme, ATextMustTellEnough) {
  const auto model = tiny_options("tiny-llama3").model;
  const choral::testing::TempDir dir;
  const auto error = [&](CalibrationText text) {
    auto options = wanted(model, dir.path() / "out", "compressed-tensors");
    text.name = "items.txt";
    options.calibration = text;
    const auto status = quantize(options).status();
    EXPECT_TRUE(fs::is_empty(dir.path()));
    return status.message();
  };
  EXPECT_THAT(error({}), HasSubstr("items.txt is empty"));
  EXPECT_THAT(error({.text = "caf\xE9"}), HasSubstr("is not UTF-8 at byte 3"));
  EXPECT_THAT(error({.text = "Only a few words."}),
              HasSubstr("tokens of items.txt: scales of activations are found on 256 or more"));
  EXPECT_THAT(error({.text = text_of(60), .max_tokens = 100}), HasSubstr("100 tokens of items.txt"));
  EXPECT_THAT(error({.text = text_of(60), .window_tokens = 4096}), HasSubstr("--ctx-size 4096: the model was made for 512"));
}

TEST(CalibratedScheme, OnlyW8A8TakesAText) {
  const auto model = tiny_options("tiny-llama3").model;
  auto options = wanted(model, "/no/such/folder", "compressed-tensors");
  options.calibration.reset();
  EXPECT_THAT(quantize(options).status().message(), AllOf(HasSubstr("--calibration FILE"), HasSubstr("w8a8_dynamic")));
  options = wanted(model, "/no/such/folder", "compressed-tensors");
  options.scheme = "w8a16";
  EXPECT_THAT(quantize(options).status().message(), HasSubstr("--calibration is for --scheme w8a8"));
}

// A norm of zeros gives the attention of its layer nothing but zeros.
TEST(CalibratedScheme, ALayerThatIsGivenNothingIsNamed) {
  const auto model = fs::path(tiny_options("tiny-llama3").model);
  const choral::testing::TempDir dir;
  fs::create_directory(dir.path() / "model");
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"})
    fs::copy(model / file, dir.path() / "model");
  const auto source = *io::Checkpoint::open(model);
  auto zeros = *Tensor::allocate(DType::kF32, {64});
  std::ranges::fill(zeros.as<float>(), 0.0f);
  std::vector<io::TensorToWrite> all;
  for (const auto& name : source->names()) {
    all.push_back({name, name == "model.layers.2.input_layernorm.weight" ? zeros.view() : source->find(name)->view});
  }
  ASSERT_TRUE(io::write_safetensors(dir.path() / "model/model.safetensors", all).ok());
  auto options = wanted(dir / "model", dir.path() / "out", "compressed-tensors");
  const auto status = quantize(options).status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("model.layers.2.self_attn.k_proj was given no number but 0"));
  options.ignore = {".*layers.2.self_attn.*"};
  EXPECT_TRUE(quantize(options).ok());
}

}  // namespace
}  // namespace choral::tools
