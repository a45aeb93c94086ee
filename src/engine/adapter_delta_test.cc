// What an adapter adds to a rounded base is what it adds to the same rounded weights kept as float32: it reads the float rows of
// x and is added in float, so the rounding of the base is no part of it.
#include <gmock/gmock.h>

#include <cmath>
#include <deque>

#include "engine/adapters/adapter_files_test.h"
#include "io/mapped_file.h"
#include "io/safetensors_writer.h"
#include "quant/rounded_weight.h"

namespace choral::engine {
namespace {

// The tiny model with linear weights as `bits` leave them, in float32.
class RoundedInFloat {
 public:
  RoundedInFloat(const std::string& model, int bits) {
    const std::filesystem::path from = tiny_options(model).model;
    const auto source = *io::Checkpoint::open(from);
    ThreadPool pool(2);
    Arena scratch;
    const kernels::Context ctx{pool, cpu_level(), scratch};
    std::vector<io::TensorToWrite> tensors;
    std::deque<Tensor> kept;
    for (const auto& name : source->names()) {
      const auto weight = source->find(name)->view;
      if (!name.ends_with("_proj.weight")) {
        tensors.push_back({name, weight});
        continue;
      }
      const auto rounded = *quant::round_to_int(ctx, weight, bits, name);
      const int64_t cols = weight.cols(), group = rounded.group_size == 0 ? cols : rounded.group_size;
      Tensor& wide = kept.emplace_back(*Tensor::allocate(DType::kF32, {weight.rows(), cols}));
      for (int64_t i = 0; i < weight.rows() * cols; ++i) {
        wide.as<float>()[i] = static_cast<float>(rounded.codes.as<int8_t>()[i]) * rounded.scales[i / group];
      }
      tensors.push_back({name, wide.view()});
    }
    CHORAL_CHECK(io::write_safetensors(folder_.path() / "model.safetensors", tensors).ok(), "the checkpoint is written");
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "config.json"}) {
      if (std::filesystem::exists(from / file)) std::filesystem::copy(from / file, folder_.path());
    }
  }
  std::string path() const { return folder_.path().string(); }

 private:
  choral::testing::TempDir folder_;
};

Request prompt(std::vector<AdapterUse> adapters) {
  auto request = with_adapters(greedy_request(random_prompt(60, 7), 1), std::move(adapters));
  request.sampling.prompt_logprobs = 1;
  return request;
}

// By how much the adapter moves the log-probability of each of the prompt's tokens.
std::vector<double> delta(EngineOptions options, const std::string& adapter) {
  options.adapters = {{"a", adapter}};
  const auto llm = load_or_die(options);
  const auto with = llm->generate({prompt({{"a"}})}).front(), without = llm->generate({prompt({})}).front();
  std::vector<double> out;
  for (size_t i = 0; i < with.prompt_logprobs.size(); ++i) {
    out.push_back(with.prompt_logprobs[i].chosen.logprob - without.prompt_logprobs[i].chosen.logprob);
  }
  return out;
}

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

TEST(AdapterDelta, IsThatOfTheSameWeightsInFloat) {
  const AdapterFiles files;
  const std::string adapter = files.write("a", 8, 1);
  for (const auto& [scheme, bits] : {std::pair{"w8a16", 8}, std::pair{"w4a16", 4}}) {
    SCOPED_TRACE(scheme);
    auto rounded = tiny_options(), wide = tiny_options();
    rounded.quantization = scheme;
    const RoundedInFloat in_float("tiny-llama3", bits);
    wide.model = in_float.path();
    const auto got = delta(rounded, adapter);
    auto off = delta(wide, adapter);
    ASSERT_EQ(got.size(), off.size());
    const double size = norm(off);
    ASSERT_GT(size, 0.1) << "the adapter does nothing";
    for (size_t i = 0; i < off.size(); ++i) off[i] -= got[i];
    EXPECT_LT(norm(off), 0.01 * size);
  }
}

}  // namespace
}  // namespace choral::engine
