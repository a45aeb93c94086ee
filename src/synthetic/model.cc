#include "synthetic/model.h"

#include <fmt/ranges.h>

#include <array>

namespace choral::synthetic {
namespace {

struct NamedShape {
  std::string_view name;
  int hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, positions;
  double rope_theta;
  bool tied;
};

constexpr std::array<NamedShape, 3> kShapes{{
    {"135m", 576, 1536, 30, 9, 3, 64, 49152, 8192, 1e5, true},              // SmolLM2-135M
    {"llama-1b", 2048, 8192, 16, 32, 8, 64, 128256, 131072, 5e5, true},     // Llama-3.2-1B
    {"llama-8b", 4096, 14336, 32, 32, 8, 128, 128256, 131072, 5e5, false},  // Llama-3.1-8B
}};

}  // namespace

Result<io::ConfigMap> model_config(std::string_view name) {
  for (const auto& s : kShapes) {
    if (s.name != name) continue;
    return io::ConfigMap::parse_json(
        fmt::format(
            R"({{"architectures": ["LlamaForCausalLM"], "hidden_size": {}, "intermediate_size": {}, "num_hidden_layers": {},
                        "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, "vocab_size": {},
                        "max_position_embeddings": {}, "rope_theta": {}, "rms_norm_eps": 1e-5, "hidden_act": "silu",
                        "tie_word_embeddings": {}, "eos_token_id": 2}})",
            s.hidden, s.intermediate, s.layers, s.heads, s.kv_heads, s.head_dim, s.vocab, s.positions, s.rope_theta, s.tied),
        fmt::format("synthetic model {}", name));
  }
  return invalid_argument("no synthetic model is named '{}'; choose {}", name, fmt::join(model_names(), ", "));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& s : kShapes) names.emplace_back(s.name);
  return names;
}

}  // namespace choral::synthetic
