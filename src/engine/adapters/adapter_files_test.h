// Adapters for the engine's tests, written to a folder of their own: random ones of any rank over a tiny model's linear layers.
#pragma once

#include <filesystem>
#include <string>

#include "engine/checkpoint_weights.h"
#include "engine/model_loader.h"
#include "engine/synthetic_adapter.h"
#include "engine/tiny_model_test.h"
#include "engine/worker.h"
#include "io/checkpoint.h"
#include "support/temp_dir.h"

namespace choral::engine {

class AdapterFiles {
 public:
  explicit AdapterFiles(const std::string& model = "tiny-llama3") {
    EngineOptions options = tiny_options(model);
    worker_ = std::move(*Worker::make(options));
    const auto files = open_model_files(options);
    CHORAL_CHECK(files.ok(), "the tiny model opens");
    auto checkpoint = io::Checkpoint::open(files->path);
    CheckpointWeights weights(*checkpoint, {});
    CHORAL_CHECK(worker_->load(files->config, weights, options).ok(), "the tiny model loads");
  }

  // The folder of a random adapter, written now. Another seed gives other weights.
  std::string write(const std::string& name, int64_t rank, uint64_t seed, DType dtype = DType::kF32) const {
    const auto path = folder_.path() / name;
    const auto size = write_synthetic_adapter(path, targets(), {.rank = rank, .dtype = dtype, .seed = seed});
    CHORAL_CHECK(size.ok(), size.status().message());
    return path.string();
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
