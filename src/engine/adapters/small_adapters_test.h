// Adapters for tests without a model: files for the small targets of lora's tests, in a folder of their own. Tests only.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lora/store/built_adapter_test.h"
#include "support/temp_dir.h"

namespace choral::engine {

class SmallAdapters {
 public:
  // The folder of an adapter, written now. Another seed gives other weights. `more` goes into its config.
  std::string write(const std::string& name, int seed, std::string_view more = "") const {
    return write(name, lora::testing::AdapterBuilder().query_and_value(), seed, more);
  }
  // Replaces a norm's weight.
  std::string write_replacing(const std::string& name) const {
    lora::testing::AdapterBuilder builder;
    builder.query_and_value().add("base_model.model.model.norm.weight", {lora::testing::kHidden});
    return write(name, builder, 1, R"(,"modules_to_save":["model.norm"])");
  }
  const std::vector<lora::LoRATarget>& targets() const { return targets_; }
  const std::filesystem::path& root() const { return folder_.path(); }

 private:
  std::string write(const std::string& name, lora::testing::AdapterBuilder builder, int seed, std::string_view more) const {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path);
    builder.tensors.front().values.front() = static_cast<float>(seed);
    lora::testing::write_file(path / "adapter_config.json", lora::testing::config_json(more));
    lora::testing::write_file(path / "adapter_model.safetensors", builder.safetensors());
    return path.string();
  }

  testing::TempDir folder_;
  std::vector<lora::LoRATarget> targets_ = lora::testing::small_targets();
};

}  // namespace choral::engine
