#include "io/class_defaults.h"

#include "base/check.h"
#include "io/model_class.h"

namespace choral::io {
namespace {

struct ClassDefaults {
  std::string_view architecture;
  std::string_view fields;  // JSON
};

// Only what is another than the readers of models take anyway, and no sizes: every file has those.
constexpr ClassDefaults kClasses[] = {
    {"CohereForCausalLM", R"({"tie_word_embeddings": true})"},
    {"Cohere2ForCausalLM", R"({"tie_word_embeddings": true})"},
    {"Ernie4_5ForCausalLM",
     R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "tie_word_embeddings": true})"},
    {"Exaone4ForCausalLM", R"({"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096})"},
    {"GlmForCausalLM", R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5})"},
    {"Glm4ForCausalLM",
     R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5})"},
    {"GraniteMoeHybridForCausalLM", R"({"num_experts": 8, "num_experts_per_tok": 2})"},
    {"HunYuanDenseV1ForCausalLM", R"({"rms_norm_eps": 1e-5})"},
    {"HunYuanMoEV1ForCausalLM", R"({"rms_norm_eps": 1e-5})"},
    {"MinistralForCausalLM", R"({"num_key_value_heads": 8})"},
    {"Ministral3ForCausalLM", R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5})"},
    {"Olmo2ForCausalLM", R"({"rms_norm_eps": 1e-5})"},
    // The base of layers with a window is the class's where the file has only one: so transformers 5 reads the old spelling.
    {"Olmo3ForCausalLM", R"({"rms_norm_eps": 1e-5, "sliding_window": 4096, "rope_theta": 5e5, "rope_local_base_freq": 5e5})"},
    {"PhiMoEForCausalLM", R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6})"},
    {"PhimoeForCausalLM", R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6})"},
    {"SeedOssForCausalLM", R"({"num_key_value_heads": 8, "head_dim": 128})"},
    {"SmolLM3ForCausalLM", R"({"num_key_value_heads": 4, "rope_theta": 2e6, "tie_word_embeddings": true})"},
};

}  // namespace

ConfigMap with_class_defaults(const ConfigMap& config) {
  const auto names = config.get_strings_or_empty("architectures");
  if (!names.ok() || names->empty()) return config;
  ConfigObject out = config.object();
  for (const auto& [architecture, fields] : kClasses) {
    if (model_class(architecture).family != model_class(names->front()).family) continue;
    const auto defaults = ConfigMap::parse_json(fields, std::string(architecture));
    CHORAL_CHECK(defaults.ok(), "the defaults of a class are JSON");
    for (const auto& member : defaults->members()) {
      if (out.find(member.key) == nullptr) out.set(member.key, member.value);
    }
  }
  return ConfigMap(std::move(out), config.source());
}

}  // namespace choral::io
