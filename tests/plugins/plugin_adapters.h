// Adapters for tiny-qwen3, written to a folder: pairs on some projections, one that is measured against the base's rows, one that
// brings norms of its own.
#pragma once

#include <cmath>
#include <initializer_list>
#include <string_view>

#include "lora/store/built_adapter_test.h"
#include "support/temp_dir.h"

namespace choral::plugins {

inline constexpr int64_t kHidden = 64, kHeadDim = 32, kQueryColumns = 128, kKeyColumns = 64, kInner = 128, kLayers = 4;

// The folder that holds the adapter.
inline std::string write_adapter(const choral::testing::TempDir& folder, const std::string& name,
                                 const lora::testing::AdapterBuilder& adapter, const std::string& config) {
  folder.write(name + "/adapter_model.safetensors", adapter.safetensors());
  folder.write(name + "/adapter_config.json", config);
  return (folder.path() / name).string();
}

struct Projection {
  std::string_view name;  // within a layer
  int64_t in, out;
};
inline constexpr Projection kQuery{"self_attn.q_proj", kHidden, kQueryColumns}, kKey{"self_attn.k_proj", kHidden, kKeyColumns},
    kValue{"self_attn.v_proj", kHidden, kKeyColumns}, kOutput{"self_attn.o_proj", kQueryColumns, kHidden},
    kGate{"mlp.gate_proj", kHidden, kInner}, kUp{"mlp.up_proj", kHidden, kInner}, kDown{"mlp.down_proj", kInner, kHidden};

// Pairs on these projections of every layer, with values of either sign that are small enough for an answer that still depends on
// the prompt.
inline std::string write_pairs(const choral::testing::TempDir& folder, const std::string& name, int64_t rank,
                               std::initializer_list<Projection> projections) {
  lora::testing::AdapterBuilder adapter;
  std::string modules;
  for (const auto& p : projections) {
    for (int64_t i = 0; i < kLayers; ++i) adapter.pair(fmt::format("model.layers.{}.{}", i, p.name), rank, p.in, p.out);
    modules += fmt::format(R"({}"{}")", modules.empty() ? "" : ",", p.name.substr(p.name.find('.') + 1));
  }
  for (auto& tensor : adapter.tensors) {
    for (size_t v = 0; v < tensor.values.size(); ++v) tensor.values[v] = 0.02F * std::sin(static_cast<float>(v * 7 + 3));
  }
  return write_adapter(folder, name, adapter,
                       fmt::format(R"({{"peft_type":"LORA","r":{},"lora_alpha":16,"target_modules":[{}]}})", rank, modules));
}

// On q and o.
inline std::string write_of_rank(const choral::testing::TempDir& folder, int64_t rank) {
  return write_pairs(folder, fmt::format("rank{}", rank), rank, {kQuery, kOutput});
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
