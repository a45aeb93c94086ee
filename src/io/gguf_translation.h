// GGUF metadata -> the configuration in Hugging Face words: the work of model_config_from_gguf. What all architectures have is in
// model_config_gguf.cc, what one family has in gguf_families.cc, or gguf_mixtures.cc. Internal to io.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <vector>

#include "io/gguf_names.h"

namespace choral::io {

// GGUF stores 1e-5 as a float, which is 9.99999974738e-06 as a double; what was meant is the shortest decimal of that float.
double as_written(double value);

class GgufTranslation {
 public:
  GgufTranslation(const GgufFile& file, const GgufArchitecture& architecture) : file_(file), architecture_(architecture) {}

  Result<ConfigMap> model_config();

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_.name, name); }
  const ConfigMap& metadata() const { return file_.metadata(); }
  Result<int64_t> count(std::string_view name) const { return metadata().get_int(key(name), kPositive); }
  Result<int64_t> count_or(std::string_view name, int64_t absent) const {
    return metadata().get_int_or(key(name), absent, kPositive);
  }
  bool has(std::string_view name) const { return metadata().contains(key(name)); }
  // Under `hf`, where the file has it.
  Status copy_double(std::string_view gguf, std::string_view hf, ConfigObject& out) const;

  Status sizes();
  Status heads(int64_t hidden_size);
  Result<int64_t> vocabulary() const;
  Status rope();
  Result<ConfigValue> rope_scaling() const;
  Result<ConfigArray> factors(std::string_view tensor) const;
  Result<ConfigValue> long_rope() const;
  Result<ConfigValue> yarn() const;
  Status experts();

  Status family();
  Status gemma();
  void embedding_layers();
  Result<std::vector<bool>> gemma4_windows(int64_t layers) const;
  Result<std::vector<int64_t>> of_layers(std::string_view name, int64_t layers) const;
  Status gemma4_heads(const std::vector<bool>& windows);
  Status gemma4_mlp(int64_t layers, int64_t shared);
  Status gemma4();
  Status phi3();
  Status latent_heads();
  Status shared_experts();
  Status deepseek();
  Status glm4moe();
  Status granite_multipliers();
  Status granitemoe();
  Status granitehybrid();
  Status ernie4_5_moe();
  Status hunyuan_moe();
  Status phimoe();
  Status llama4();
  Status qwen2moe();
  Status gpt_oss();
  Status olmoe();
  Status olmo3();
  Status granite();
  Status mistral3();
  Status glm();
  Status exaone4();
  Status cohere();
  Status layer_types(int64_t period);
  Status delta_nets();
  Status query_scale(ConfigObject& scaling) const;
  Status yarn_of_family(ConfigObject& scaling) const;

  const GgufFile& file_;
  const GgufArchitecture& architecture_;
  ConfigObject out_;
  int64_t head_dim_ = 0;
};

}  // namespace choral::io
