// Adapters for the engine's tests, written to a folder of their own: random ones of any rank over a tiny model's linear layers.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/checkpoint_weights.h"
#include "engine/model_loader.h"
#include "engine/tiny_model_test.h"
#include "engine/worker.h"
#include "io/checkpoint.h"
#include "io/safetensors_writer.h"
#include "support/temp_dir.h"
#include "synthetic/adapter.h"
#include "synthetic/random.h"

namespace choral::engine {

class AdapterFiles {
 public:
  explicit AdapterFiles(const std::string& model = "tiny-llama3") {
    EngineOptions options = tiny_options(model);
    worker_ = std::move(*Worker::make(options));
    const auto files = open_model_files(options);
    CHORAL_CHECK(files.ok(), "the tiny model opens");
    auto checkpoint = io::Checkpoint::open(files->location);
    CheckpointWeights weights(*checkpoint, {});
    CHORAL_CHECK(worker_->load(files->config, weights, options).ok(), "the tiny model loads");
  }

  // The folder of a random adapter, written now. Another seed gives other weights.
  std::string write(const std::string& name, int64_t rank, uint64_t seed, DType dtype = DType::kF32) const {
    const auto path = folder_.path() / name;
    const auto size = synthetic::write_adapter(path, targets(), {.rank = rank, .dtype = dtype, .seed = seed});
    CHORAL_CHECK(size.ok(), size.status().message());
    return path.string();
  }
  // The same with `tokens` of its own, beside whatever files of a tokenizer: rows large enough that they are often chosen.
  std::string write_own_tokens(const std::string& name, int64_t tokens, std::string_view tokenizer_config = "",
                               uint64_t seed = 5) const {
    const auto path = write(name, 4, seed);
    synthetic::Random random(seed);
    std::vector<Tensor> rows;
    std::vector<io::TensorToWrite> files;
    for (const auto& target : targets()) {
      if (target.kind != lora::TargetKind::kEmbedding && target.kind != lora::TargetKind::kHead) continue;
      rows.push_back(*Tensor::allocate(DType::kF32, {tokens, target.in}));
      for (float& value : rows.back().as<float>()) value = random.uniform(2.0F);
      files.push_back({target.kind == lora::TargetKind::kHead ? "output_embeddings" : "input_embeddings", rows.back().view()});
    }
    const std::filesystem::path folder = path;
    CHORAL_CHECK(io::write_safetensors(folder / "new_embeddings.safetensors", files).ok(), "the rows are written");
    if (!tokenizer_config.empty()) std::ofstream(folder / "tokenizer_config.json") << tokenizer_config;
    return path;
  }
  std::span<const lora::LoRATarget> targets() const { return worker_->loaded().model->lora_targets(); }
  const std::filesystem::path& root() const { return folder_.path(); }

 private:
  testing::TempDir folder_;
  std::unique_ptr<Worker> worker_;
};

inline Request with_adapters(Request request, std::vector<AdapterUse> adapters) {
  request.adapters = std::move(adapters);
  return request;
}

}  // namespace choral::engine
