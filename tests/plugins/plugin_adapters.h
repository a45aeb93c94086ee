// Adapters for tiny-qwen3, written to a folder: one that is measured against the base's rows, one that brings norms of its own.
#pragma once

#include <cmath>

#include "lora/store/built_adapter_test.h"
#include "support/temp_dir.h"

namespace choral::plugins {

inline constexpr int64_t kHidden = 64, kHeadDim = 32, kQueryColumns = 128, kLayers = 4;

// The folder that holds the adapter.
inline std::string write_adapter(const choral::testing::TempDir& folder, const std::string& name,
                                 const lora::testing::AdapterBuilder& adapter, const std::string& config) {
  folder.write(name + "/adapter_model.safetensors", adapter.safetensors());
  folder.write(name + "/adapter_config.json", config);
  return (folder.path() / name).string();
}

// On q and o of every layer.
inline std::string write_of_rank(const choral::testing::TempDir& folder, int64_t rank) {
  lora::testing::AdapterBuilder adapter;
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.self_attn.", i);
    adapter.pair(layer + "q_proj", rank, kHidden, kQueryColumns).pair(layer + "o_proj", rank, kQueryColumns, kHidden);
  }
  // Values of either sign, small enough for an answer that still depends on the prompt.
  for (auto& tensor : adapter.tensors) {
    for (size_t v = 0; v < tensor.values.size(); ++v) tensor.values[v] = 0.02F * std::sin(static_cast<float>(v * 7 + 3));
  }
  const auto config = fmt::format(R"({{"peft_type":"LORA","r":{},"lora_alpha":16,"target_modules":["q_proj","o_proj"]}})", rank);
  return write_adapter(folder, fmt::format("rank{}", rank), adapter, config);
}

// DoRA on one projection: the norms of its rows are read from the base.
inline std::string write_dora(const choral::testing::TempDir& folder) {
  const std::string query = "model.layers.0.self_attn.q_proj";
  lora::testing::AdapterBuilder adapter;
  adapter.pair(query, 2, kHidden, kQueryColumns).add("base_model.model." + query + ".lora_magnitude_vector", {kQueryColumns});
  return write_adapter(folder, "dora", adapter,
                       lora::testing::config_json(R"(,"use_dora":true)", R"(["layers.0.self_attn.q_proj"])"));
}

// Replaces `norms`, each of "input_layernorm", "post_attention_layernorm", "q_norm", "k_norm", in every layer.
inline std::string write_norms(const choral::testing::TempDir& folder, const std::string& name,
                               const std::vector<std::string>& norms) {
  lora::testing::AdapterBuilder adapter;
  std::string saved;
  for (const auto& norm : norms) saved += (saved.empty() ? "\"" : ",\"") + norm + "\"";
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    adapter.pair(layer + "self_attn.q_proj", 2, kHidden, kQueryColumns);
    for (const auto& norm : norms) {
      const bool of_heads = norm == "q_norm" || norm == "k_norm";
      adapter.add("base_model.model." + layer + (of_heads ? "self_attn." : "") + norm + ".weight",
                  {of_heads ? kHeadDim : kHidden}, "F32", 60 + static_cast<int>(i));
    }
  }
  return write_adapter(folder, name, adapter,
                       lora::testing::config_json(R"(,"modules_to_save":[)" + saved + "]", R"(["q_proj"])"));
}

}  // namespace choral::plugins
