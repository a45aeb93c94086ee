// A base whose linear layers are quantised while it is loaded: adapters act on it in any mix, and fusion changes no bit.
#include <gmock/gmock.h>

#include <cmath>
#include <deque>

#include "engine/adapters/adapter_files_test.h"
#include "io/mapped_file.h"
#include "io/safetensors_writer.h"
#include "kernels/quant/dequantise.h"

namespace choral::engine {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

EngineOptions quantised(const std::string& model = "tiny-llama3", const std::string& scheme = "w8a8_dynamic") {
  auto options = tiny_options(model);
  options.quantization = scheme;
  return options;
}

// A scheme, and how far from the float model its log-probabilities may be: random weights spread over more than trained ones.
struct InFlight {
  const char* scheme;
  const char* format;
  double off;
};
constexpr InFlight kInFlight[] = {
    {"w8a8_dynamic", "int8", 0.2}, {"w8a16", "int8", 0.2}, {"w4a16", "int4", 1.8}, {"w4a8_dynamic", "int4", 1.8}};

Request prompt(std::vector<AdapterUse> adapters = {}, int length = 40) {
  auto request = with_adapters(greedy_request(random_prompt(length, 7), 8), std::move(adapters));
  request.sampling.prompt_logprobs = 1;
  return request;
}

// Mean distance of the log-probabilities of the prompt's tokens.
double distance(const RequestOutput& a, const RequestOutput& b) {
  double sum = 0;
  const size_t count = a.prompt_logprobs.size();
  EXPECT_GT(count, 0u);
  EXPECT_EQ(b.prompt_logprobs.size(), count);
  for (size_t i = 0; i < count; ++i) sum += std::abs(a.prompt_logprobs[i].chosen.logprob - b.prompt_logprobs[i].chosen.logprob);
  return sum / static_cast<double>(count);
}

TEST(QuantizedBase, IsNearTheFloatModelAndSmaller) {
  for (const char* model :
       {"tiny-llama3", "tiny-qwen2", "tiny-qwen3", "tiny-gemma2", "tiny-gemma3", "tiny-qwen3moe", "tiny-olmoe", "tiny-olmo3",
        "tiny-granite", "tiny-granite-h", "tiny-cohere2", "tiny-qwen2moe", "tiny-llama4", "tiny-gemma4-e", "tiny-gemma4-moe"}) {
    const auto exact = load_or_die(tiny_options(model));
    for (const auto& [scheme, format, most] : kInFlight) {
      SCOPED_TRACE(fmt::format("{} {}", model, scheme));
      const auto rounded = load_or_die(quantised(model, scheme));
      EXPECT_LT(rounded->info().weight_bytes, exact->info().weight_bytes);
      EXPECT_THAT(rounded->info().notes, Contains(HasSubstr(format)));
      const double off = distance(exact->generate({prompt()}).front(), rounded->generate({prompt()}).front());
      EXPECT_GT(off, 0) << "nothing was quantised";
      EXPECT_LT(off, most);
    }
  }
}

// Adapters included: they read the float rows, which a fused operator gives beside the quantised ones.
TEST(QuantizedBase, FusionChangesNoBit) {
  const AdapterFiles files;
  for (const auto& in_flight : kInFlight) {
    SCOPED_TRACE(in_flight.scheme);
    auto together = quantised("tiny-llama3", in_flight.scheme);
    together.adapters = {{"a", files.write("a", 8, 1)}};
    auto apart = together;
    apart.fuse = "none";
    const auto fused = load_or_die(together), unfused = load_or_die(apart);
    EXPECT_THAT(fused->info().notes, Contains(HasSubstr("fused: rms_norm_quantise")));
    EXPECT_THAT(fused->info().notes, Contains(HasSubstr("fused: silu_and_mul_quantise")));
    for (const int length : {1, 5, 40, 100}) {
      for (const auto& adapters : {std::vector<AdapterUse>{}, {{"a"}}}) {
        expect_same_bits(fused->generate({prompt(adapters, length)}).front(),
                         unfused->generate({prompt(adapters, length)}).front());
      }
    }
  }
}

TEST(QuantizedBase, EachRowOfAMixIsItsAnswerAlone) {
  const AdapterFiles files;
  const std::string a = files.write("a", 8, 1), b = files.write("b", 64, 2);
  for (const auto& in_flight : kInFlight) {
    for (const char* activations : {"auto", "int8"}) {
      SCOPED_TRACE(fmt::format("{} {}", in_flight.scheme, activations));
      auto options = quantised("tiny-llama3", in_flight.scheme);
      options.activations = activations;
      const auto plain = load_or_die(options);
      options.adapters = {{"a", a}, {"b", b}};
      const auto llm = load_or_die(options);
      const std::vector<Request> mix{prompt(), prompt({{"a"}}), prompt({{"b"}}), prompt({{"a", 0.5F}, {"b", 0.5F}}), prompt()};
      const auto together = llm->generate(mix);
      for (size_t i = 0; i < mix.size(); ++i) expect_same_bits(llm->generate({mix[i]}).front(), together[i]);
      expect_same_bits(plain->generate({prompt()}).front(), together[0]);
    }
  }
}

TEST(QuantizedBase, Int8ActivationsAreAChoiceOfWeightOnlySchemes) {
  auto options = quantised("tiny-llama3", "w8a16");
  const auto full = load_or_die(options);
  options.activations = "int8";
  const auto rounded = load_or_die(options);
  EXPECT_THAT(full->info().layers, Contains(Field(&LayerForms::kernel, HasSubstr("2 int8"))));
  EXPECT_THAT(rounded->info().layers, Contains(Field(&LayerForms::kernel, HasSubstr("1 int8"))));
  const double off = distance(full->generate({prompt()}).front(), rounded->generate({prompt()}).front());
  EXPECT_GT(off, 0);
  EXPECT_LT(off, 0.2);
  options.activations = "int4";
  EXPECT_THAT(LLM::load(options).status().message(), HasSubstr("--activations int4: choose auto"));
}

// What is not computed just as the checkpoint says is told, and refused if that was asked for.
TEST(QuantizedBase, StrictRefusesWhatIsComputedOtherwise) {
  auto options = tiny_options();
  const choral::testing::TempDir folder;
  std::filesystem::copy(options.model, folder.path());
  auto config = *io::read_whole_file(options.model + "/config.json", 1 << 20);
  folder.write("config.json", config.insert(config.find('{') + 1, R"("quantization_config": {"quant_method": "compressed-tensors",
    "format": "int-quantized", "ignore": ["re:.*"], "kv_cache_scheme": {"num_bits": 8}, "config_groups": {"group_0": {
    "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}},)"));
  options.model = folder.path().string();
  EXPECT_THAT(load_or_die(options)->info().notes,
              Contains(HasSubstr("kv_cache_scheme: its scales are not used; --kv-cache-dtype")));
  options.strict = true;
  EXPECT_THAT(LLM::load(options).status().message(), HasSubstr("--strict: "));
}

// The tiny model as llm-compressor would have written it: int8 linear weights of the definition's own arithmetic.
class WrittenCheckpoint {
 public:
  explicit WrittenCheckpoint(const std::string& model, bool fixed_input = false) {
    const auto source = *io::Checkpoint::open(tiny_options(model).model);
    std::vector<io::TensorToWrite> all;
    for (const auto& name : source->names()) {
      const auto tensor = source->find(name)->view;
      if (!name.ends_with("_proj.weight")) {
        all.push_back({name, tensor});
        continue;
      }
      const auto& [q, scale] = quantised_.emplace_back(quantise(tensor));
      all.push_back({name, q.view()});
      all.push_back({name + "_scale", scale.view()});
      if (fixed_input) all.push_back({name.substr(0, name.size() - 6) + "input_scale", input_scale_.view()});
    }
    CHORAL_CHECK(io::write_safetensors(folder_ / "model.safetensors", all).ok(), "the checkpoint is written");
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
      if (std::filesystem::exists(tiny_options(model).model + "/" + file))
        std::filesystem::copy(tiny_options(model).model + "/" + file, folder_.path());
    }
    auto config = *io::read_whole_file(tiny_options(model).model + "/config.json", 1 << 20);
    std::string quantization(kQuantizationConfig);
    const std::string_view token = R"("token", "dynamic": true)";
    if (fixed_input) quantization.replace(quantization.find(token), token.size(), R"("tensor", "dynamic": false)");
    folder_.write("config.json", config.insert(config.find('{') + 1, quantization + ","));
  }
  std::string path() const { return folder_.path().string(); }

 private:
  static constexpr std::string_view kQuantizationConfig = R"("quantization_config": {"quant_method": "compressed-tensors",
    "format": "int-quantized", "quantization_status": "compressed", "ignore": ["lm_head"], "config_groups": {"group_0": {
    "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"},
    "input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true}}}})";

  static std::pair<Tensor, Tensor> quantise(const TensorView& weight) {
    const int64_t rows = weight.rows(), cols = weight.cols();
    auto q = *Tensor::allocate(DType::kI8, {rows, cols}), scale = *Tensor::allocate(DType::kF32, {rows, 1});
    std::vector<float> row(cols);
    for (int64_t r = 0; r < rows; ++r) {
      kernels::dequantise_row(weight.dtype, weight.row(r), cols, row.data());
      float largest = 0;
      for (const float v : row) largest = std::max(largest, std::abs(v));
      scale.as<float>()[r] = largest / 127.0f;
      for (int64_t i = 0; i < cols; ++i)
        q.as<int8_t>()[r * cols + i] = static_cast<int8_t>(std::nearbyint(row[i] / (largest / 127.0f)));
    }
    return {std::move(q), std::move(scale)};
  }

  static Tensor one_value(float value) {
    auto tensor = *Tensor::allocate(DType::kF32, {1});
    tensor.as<float>()[0] = value;
    return tensor;
  }

  choral::testing::TempDir folder_;
  const Tensor input_scale_ = one_value(0.04f);  // x reaches about 5
  std::deque<std::pair<Tensor, Tensor>> quantised_;
};

TEST(QuantizedBase, AWrittenCheckpointIsTheSameToTheBit) {
  for (const char* model : {"tiny-llama3", "tiny-qwen2"}) {
    const WrittenCheckpoint written(model);
    auto options = tiny_options(model);
    options.model = written.path();
    const auto stored = load_or_die(options), in_flight = load_or_die(quantised(model));
    for (const int length : {5, 100}) {
      expect_same_bits(stored->generate({prompt({}, length)}).front(), in_flight->generate({prompt({}, length)}).front());
    }
    options.quantization = "w8a8_dynamic";
    EXPECT_THAT(LLM::load(options).status().message(), HasSubstr("is for float checkpoints"));
  }
}

TEST(QuantizedBase, StaticActivationsAreTheSameFusedOrNot) {
  const WrittenCheckpoint written("tiny-llama3", /*fixed_input=*/true);
  const AdapterFiles files;
  auto options = tiny_options();
  options.model = written.path();
  options.adapters = {{"a", files.write("a", 8, 1)}};
  const auto fused = load_or_die(options);
  options.fuse = "none";
  const auto unfused = load_or_die(options), exact = load_or_die(tiny_options());
  const auto answer = fused->generate({prompt()}).front();
  expect_same_bits(answer, unfused->generate({prompt()}).front());
  expect_same_bits(fused->generate({prompt({{"a"}})}).front(), unfused->generate({prompt({{"a"}})}).front());
  EXPECT_LT(distance(exact->generate({prompt()}).front(), answer), 0.4);
}

TEST(QuantizedBase, AQuantisedTensorThatIsMissingIsNamed) {
  const WrittenCheckpoint written("tiny-llama3");
  auto options = tiny_options();
  options.model = written.path();
  auto config = *io::read_whole_file(options.model + "/config.json", 1 << 20);
  const std::string_view ignore = "[\"lm_head\"]";
  config.replace(config.find(ignore), ignore.size(), "[]");  // the head is not quantised
  std::ofstream(options.model + "/config.json") << config;
  EXPECT_THAT(LLM::load(options).status().message(), HasSubstr("lm_head.weight is stored as bfloat16, int8 is wanted"));
}

TEST(QuantizedBase, AnUnknownWishListsTheKnownOnes) {
  auto options = tiny_options();
  options.quantization = "w8a8";
  const auto refused = LLM::load(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("--quantization w8a8: choose auto (the checkpoint as it is), w8a8_dynamic"));
}

}  // namespace
}  // namespace choral::engine
