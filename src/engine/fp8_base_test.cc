// A base of fp8 weights, stored in every form or made of floats while it is loaded: it answers to the bit as the same weights
// kept as float32.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "base/checked_math.h"
#include "base/float8.h"
#include "engine/adapters/adapter_files_test.h"
#include "io/mapped_file.h"
#include "io/safetensors_writer.h"
#include "kernels/quant/dequantise.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// How a checkpoint's weights are scaled, and how its config.json says so.
struct Form {
  int64_t block_rows, block_cols;  // of one scale; 0: all
  bool flat;                       // a vector of scales, not a matrix
  const char* scale_name;
  std::string quantization_config;
  bool exponents = false;  // scales as e8m0
};

std::vector<Form> forms() {
  const std::string linear = R"("quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized",
    "quantization_status": "compressed", "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"],
    "weights": {"num_bits": 8, "type": "float", "symmetric": true, "strategy": )";
  return {
      {0, 0, true, "weight_scale", linear + R"("tensor"}, "input_activations": {"num_bits": 8, "type": "float"}}}})"},
      {1, 0, false, "weight_scale", linear + R"("channel"}}}})"},
      {64, 32, false, "weight_scale", linear + R"("block", "block_structure": [64, 32]}}}})"},
      {128, 128, false, "weight_scale_inv",
       R"("quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})"},
      {128, 128, false, "weight_scale_inv", R"("quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"})"},
      {128, 128, false, "weight_scale_inv",
       R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"})", true},
      {0, 0, true, "weight_scale",
       R"("quantization_config": {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]})"},
  };
}

// The tiny model with fp8 linear weights, and with the same numbers as float32.
class WrittenPair {
 public:
  WrittenPair(const std::string& model, const Form& form) {
    const auto source = *io::Checkpoint::open(tiny_options(model).model);
    std::vector<io::TensorToWrite> quantised, wide;
    for (const auto& name : source->names()) {
      const auto tensor = source->find(name)->view;
      if (!name.ends_with("_proj.weight")) {
        quantised.push_back({name, tensor});
        wide.push_back({name, tensor});
        continue;
      }
      const auto& made = matrices_.emplace_back(tensor, form);
      const std::string layer = name.substr(0, name.size() - 6);
      quantised.push_back({name, made.codes.view()});
      quantised.push_back({layer + form.scale_name, made.scales.view()});
      if (form.block_rows == 0) quantised.push_back({layer + "input_scale", matrices_.front().input_scale.view()});
      wide.push_back({name, made.wide.view()});
    }
    write(fp8_, model, quantised, form.quantization_config + ",");
    write(float32_, model, wide, "");
  }
  EngineOptions fp8() const { return options(fp8_); }
  EngineOptions float32() const { return options(float32_); }
  void write_config(const std::string& from, const std::string& to) const {
    auto config = *io::read_whole_file(fp8_.path() / "config.json", 1 << 20);
    ASSERT_NE(config.find(from), std::string::npos);
    std::ofstream(fp8_.path() / "config.json") << config.replace(config.find(from), from.size(), to);
  }

 private:
  struct Matrix {
    Matrix(const TensorView& weight, const Form& form) {
      const int64_t rows = weight.rows(), cols = weight.cols();
      const int64_t block_rows = form.block_rows == 0 ? rows : form.block_rows;
      const int64_t block_cols = form.block_cols == 0 ? cols : form.block_cols;
      const int64_t grid_rows = ceil_div(rows, block_rows), grid_cols = ceil_div(cols, block_cols);
      std::vector<float> values(rows * cols);
      for (int64_t r = 0; r < rows; ++r) kernels::dequantise_row(weight.dtype, weight.row(r), cols, values.data() + r * cols);
      const auto scale_of = [&](int64_t i) -> float& {
        return scales.as<float>()[i / cols / block_rows * grid_cols + i % cols / block_cols];
      };
      scales = *Tensor::allocate(DType::kF32, form.flat ? Shape{grid_rows * grid_cols} : Shape{grid_rows, grid_cols});
      for (int64_t i = 0; i < rows * cols; ++i) scale_of(i) = std::max(scale_of(i), std::abs(values[i]) / 448.0f);
      if (form.exponents) {
        for (float& scale : scales.as<float>()) scale = std::exp2(std::ceil(std::log2(scale)));
      }
      codes = *Tensor::allocate(DType::kF8E4M3, {rows, cols});
      wide = *Tensor::allocate(DType::kF32, {rows, cols});
      for (int64_t i = 0; i < rows * cols; ++i) {
        const auto code = codes.as<Float8E4M3>()[i] = to_float8_e4m3(values[i] / scale_of(i));
        wide.as<float>()[i] = to_float(code) * scale_of(i);
      }
      if (form.exponents) {
        Tensor stored = *Tensor::allocate(DType::kF8E8M0, {grid_rows, grid_cols});
        std::transform(scales.as<float>().begin(), scales.as<float>().end(), stored.as<Float8E8M0>().begin(),
                       [](float scale) { return Float8E8M0{static_cast<uint8_t>(127 + std::ilogb(scale))}; });
        scales = std::move(stored);
      }
      input_scale = *Tensor::allocate(DType::kF32, {1});
      input_scale.as<float>()[0] = 0.02f;
    }
    Tensor codes, scales, wide, input_scale;
  };

  static void write(const choral::testing::TempDir& folder, const std::string& model,
                    const std::vector<io::TensorToWrite>& tensors, const std::string& members) {
    CHORAL_CHECK(io::write_safetensors(folder.path() / "model.safetensors", tensors).ok(), "the checkpoint is written");
    const std::filesystem::path from = tiny_options(model).model;
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
      if (std::filesystem::exists(from / file)) std::filesystem::copy(from / file, folder.path());
    }
    auto config = *io::read_whole_file(from / "config.json", 1 << 20);
    std::ofstream(folder.path() / "config.json") << config.insert(config.find('{') + 1, members);
  }
  static EngineOptions options(const choral::testing::TempDir& folder) {
    auto options = tiny_options();
    options.model = folder.path().string();
    return options;
  }

  std::deque<Matrix> matrices_;
  choral::testing::TempDir fp8_, float32_;
};

Request prompt(std::vector<AdapterUse> adapters = {}, int length = 40) {
  auto request = with_adapters(greedy_request(random_prompt(length, 7), 8), std::move(adapters));
  request.sampling.prompt_logprobs = 1;
  return request;
}

TEST(Fp8Base, EveryStoredFormIsTheSameWeightsAsFloat32ToTheBit) {
  for (const char* model : {"tiny-llama3", "tiny-qwen2"}) {
    for (const Form& form : forms()) {
      SCOPED_TRACE(form.quantization_config);
      const WrittenPair written(model, form);
      const auto fp8 = load_or_die(written.fp8()), wide = load_or_die(written.float32());
      EXPECT_THAT(fp8->info().notes, Contains(AllOf(HasSubstr("weights: "), HasSubstr("fp8"))));
      EXPECT_LT(fp8->info().weight_bytes, wide->info().weight_bytes);
      for (const int length : {1, 40, 100}) {
        expect_same_bits(fp8->generate({prompt({}, length)}).front(), wide->generate({prompt({}, length)}).front());
      }
    }
  }
}

TEST(Fp8Base, AdaptersActOnItInAnyMix) {
  const WrittenPair written("tiny-llama3", forms()[3]);
  const AdapterFiles files;
  const std::vector<AdapterSpec> adapters{{"a", files.write("a", 8, 1)}, {"b", files.write("b", 64, 2)}};
  auto of_fp8 = written.fp8(), of_wide = written.float32();
  of_fp8.adapters = of_wide.adapters = adapters;
  const auto fp8 = load_or_die(of_fp8), wide = load_or_die(of_wide);
  const std::vector<Request> mix{prompt(), prompt({{"a"}}), prompt({{"b"}}), prompt({{"a", 0.5F}, {"b", 0.5F}}), prompt()};
  const auto together = fp8->generate(mix), expected = wide->generate(mix);
  for (size_t i = 0; i < mix.size(); ++i) {
    expect_same_bits(together[i], expected[i]);
    expect_same_bits(fp8->generate({mix[i]}).front(), together[i]);
  }
}

// A scale for each channel, as the third written form has it.
TEST(Fp8Base, InFlightIsTheCheckpointThatWouldHaveBeenWritten) {
  for (const char* model : {"tiny-llama3", "tiny-qwen3"}) {
    const WrittenPair written(model, forms()[1]);
    auto options = tiny_options(model);
    options.quantization = "fp8";
    const auto in_flight = load_or_die(options), stored = load_or_die(written.fp8());
    for (const int length : {5, 100}) {
      expect_same_bits(in_flight->generate({prompt({}, length)}).front(), stored->generate({prompt({}, length)}).front());
    }
    options.model = written.fp8().model;
    EXPECT_THAT(LLM::load(options).status().message(), HasSubstr("--quantization fp8 is for float checkpoints"));
  }
}

TEST(Fp8Base, ADescriptionThatDoesNotFitTheTensorsIsNamed) {
  const WrittenPair written("tiny-llama3", forms()[3]);
  written.write_config("[128, 128]", "[32, 32]");
  EXPECT_THAT(LLM::load(written.fp8()).status().message(),
              AllOf(HasSubstr("q_proj.weight_scale_inv has shape"), HasSubstr("but the model's configuration needs")));
  written.write_config("[32, 32]", "[32, 48]");
  EXPECT_THAT(LLM::load(written.fp8()).status().message(), HasSubstr("weight_block_size is [32, 48], which is not read"));
  written.write_config("[32, 48]", R"([128, 128], "modules_to_not_convert": ["model.layers.0"])");
  EXPECT_THAT(LLM::load(written.fp8()).status().message(),
              HasSubstr("q_proj.weight is stored as float8_e4m3, a float type or GGUF blocks is wanted"));
}

}  // namespace
}  // namespace choral::engine
