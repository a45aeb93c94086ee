// The tiny Llama with a bias at every norm, as ModelSlim's checkpoints with smoothed outliers have them; and the same model said
// by others: W·(y + b) is W·y + W·b, so that the bias of a norm is one of the projections behind it.
#pragma once

#include <fstream>
#include <map>

#include "engine/tiny_model_test.h"
#include "io/checkpoint.h"
#include "io/mapped_file.h"
#include "io/safetensors_writer.h"
#include "kernels/quant/dequantise.h"
#include "support/temp_dir.h"
#include "synthetic/random.h"
#include "tensor/tensor.h"

namespace choral::engine {

class BiasedNorms {
 public:
  BiasedNorms() {
    const auto source = *io::Checkpoint::open(tiny_options().model);
    for (const auto& name : source->names()) {
      const auto from = source->find(name)->view;
      const bool is_vector = from.shape.rank() == 1;
      Tensor& to = tensors_[name] = *Tensor::allocate(DType::kF32, from.shape);
      const int64_t cols = is_vector ? from.shape[0] : from.cols();
      for (int64_t r = 0; r < (is_vector ? 1 : from.rows()); ++r) {
        kernels::dequantise_row(from.dtype, is_vector ? from.data : from.row(r), cols, to.as<float>().data() + r * cols);
      }
    }
    synthetic::Random random(3);
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      const auto add_bias = [&](const std::string& norm, std::initializer_list<const char*> behind) {
        Tensor& bias = biases_[prefix + norm + ".bias"] = *Tensor::allocate(DType::kF32, {kHidden});
        for (float& value : bias.as<float>()) value = random.uniform(0.5F);
        for (const char* projection : behind)
          moved_[prefix + projection + ".bias"] = product(prefix + projection + ".weight", bias);
      };
      add_bias("input_layernorm", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
      add_bias("post_attention_layernorm", {"mlp.gate_proj", "mlp.up_proj"});
      for (const char* after : {"self_attn.o_proj", "mlp.down_proj"}) {
        moved_[prefix + after + ".bias"] = *Tensor::allocate(DType::kF32, {kHidden});
      }
    }
    write(biased_, biases_, "");
    write(said_otherwise_, moved_, "true");
  }

  static constexpr int kLayers = 4;
  EngineOptions options() const { return options(biased_); }
  EngineOptions said_otherwise() const { return options(said_otherwise_); }

 private:
  static constexpr int64_t kHidden = 64;

  Tensor product(const std::string& weight, const Tensor& x) const {
    const Tensor& w = tensors_.at(weight);
    Tensor y = *Tensor::allocate(DType::kF32, {w.view().rows()});
    for (int64_t r = 0; r < w.view().rows(); ++r) {
      double sum = 0;
      for (int64_t c = 0; c < kHidden; ++c) sum += double{w.as<float>()[r * kHidden + c]} * x.as<float>()[c];
      y.as<float>()[r] = static_cast<float>(sum);
    }
    return y;
  }
  // `biased`: what config.json says of projections, if anything.
  void write(const testing::TempDir& folder, const std::map<std::string, Tensor>& more, const std::string& biased) const {
    std::vector<io::TensorToWrite> all;
    for (const auto* tensors : {&tensors_, &more}) {
      for (const auto& [name, tensor] : *tensors) all.push_back({name, tensor.view()});
    }
    CHORAL_CHECK(io::write_safetensors(folder.path() / "model.safetensors", all).ok(), "the checkpoint is written");
    const std::filesystem::path from = tiny_options().model;
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) std::filesystem::copy(from / file, folder.path());
    auto config = *io::read_whole_file(from / "config.json", 1 << 20);
    for (const std::string name : {"attention_bias", "mlp_bias"}) {
      const std::string before = "\"" + name + "\": false";
      if (!biased.empty()) config.replace(config.find(before), before.size(), "\"" + name + "\": " + biased);
    }
    std::ofstream(folder.path() / "config.json") << config;
  }
  static EngineOptions options(const testing::TempDir& folder) {
    auto options = tiny_options();
    options.model = folder.path().string();
    options.kv_cache_dtype = "float32";  // both ways say the same but for a sum's last bits
    return options;
  }

  std::map<std::string, Tensor> tensors_, biases_, moved_;
  testing::TempDir biased_, said_otherwise_;
};

}  // namespace choral::engine
