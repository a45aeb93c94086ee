#include "models/registry.h"

#include <fmt/ranges.h>

#include "base/nearest_name.h"
#include "io/model_class.h"
#include "models/families.h"

namespace choral::models {
namespace {

struct Family {
  std::string_view architecture;
  Result<std::unique_ptr<Model>> (*make)(const io::ConfigMap&, const ModelOptions&);
};

constexpr Family kFamilies[] = {
    {"CohereForCausalLM", make_cohere},
    {"Cohere2ForCausalLM", make_cohere2},
    {"DeepseekV2ForCausalLM", make_deepseek_v2},
    {"DeepseekV3ForCausalLM", make_deepseek_v3},
    {"DeepseekV32ForCausalLM", make_deepseek_v32},
    {"Ernie4_5_MoeForCausalLM", make_ernie4_5_moe},
    {"Ernie4_5ForCausalLM", make_ernie4_5},
    {"Exaone4ForCausalLM", make_exaone4},
    {"Gemma2ForCausalLM", make_gemma2},
    {"Gemma3ForCausalLM", make_gemma3},
    {"Gemma4ForCausalLM", make_gemma4},
    {"Gemma4UnifiedForCausalLM", make_gemma4_unified},
    {"Glm4ForCausalLM", make_glm4},
    {"Glm4MoeForCausalLM", make_glm4_moe},
    {"Glm4MoeLiteForCausalLM", make_glm4_moe_lite},
    {"GlmForCausalLM", make_glm},
    {"GptOssForCausalLM", make_gpt_oss},
    {"GraniteForCausalLM", make_granite},
    {"GraniteMoeForCausalLM", make_granite_moe},
    {"GraniteMoeHybridForCausalLM", make_granite_moe_hybrid},
    {"GraniteMoeSharedForCausalLM", make_granite_moe_shared},
    {"HunYuanDenseV1ForCausalLM", make_hunyuan},
    {"HunYuanMoEV1ForCausalLM", make_hunyuan_moe},
    {"Llama4ForCausalLM", make_llama4},
    {"LlamaForCausalLM", make_llama},
    {"MiniMaxM2ForCausalLM", make_minimax_m2},
    {"Ministral3ForCausalLM", make_ministral3},
    {"Mistral4ForCausalLM", make_mistral4},
    {"MinistralForCausalLM", make_mistral},
    {"MistralForCausalLM", make_mistral},
    {"MixtralForCausalLM", make_mixtral},
    {"Olmo2ForCausalLM", make_olmo2},
    {"Olmo3ForCausalLM", make_olmo3},
    {"OlmoeForCausalLM", make_olmoe},
    {"Phi3ForCausalLM", make_phi3},
    {"PhiMoEForCausalLM", make_phimoe},
    {"PhimoeForCausalLM", make_phimoe},  // transformers' own name for it
    {"Qwen2ForCausalLM", make_qwen2},
    {"Qwen2MoeForCausalLM", make_qwen2_moe},
    {"Qwen3ForCausalLM", make_qwen3},
    {"Qwen3NextForCausalLM", make_qwen3_next},
    {"Qwen3_5ForCausalLM", make_qwen3_5},
    {"Qwen3_5MoeForCausalLM", make_qwen3_5_moe},
    {"Qwen3MoeForCausalLM", make_qwen3_moe},
    {"SeedOssForCausalLM", make_seed_oss},
    {"SmolLM3ForCausalLM", make_smollm3},
    {"SolarOpenForCausalLM", make_solar_open},
};

constexpr io::IntRange kClasses{1, 1 << 16};

// Files leave out what equals the two that transformers takes for granted.
Result<int64_t> read_classes(const io::ConfigMap& config) {
  CHORAL_TRY(const auto labels, config.get_map_or_empty("id2label"));
  const auto named = std::ssize(labels.members());
  return config.get_int_or("num_labels", named > 0 ? named : 2, kClasses);
}

Result<Head> read_head(const io::ConfigMap& config, io::ClassKind kind) {
  if (kind == io::ClassKind::kText) return Head{};
  if (kind == io::ClassKind::kNoHead) return Head{.kind = HeadKind::kNone};
  CHORAL_TRY(const int64_t classes, read_classes(config));
  return Head{.kind = HeadKind::kClasses, .classes = classes};
}

}  // namespace

Result<std::unique_ptr<Model>> make_model(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(const auto wanted, config.get_strings("architectures"));
  for (const auto& architecture : wanted) {
    const auto wanted_class = io::model_class(architecture);
    if (wanted_class.kind == io::ClassKind::kOther) continue;
    for (const auto& family : kFamilies) {
      if (io::model_class(family.architecture).family != wanted_class.family) continue;
      ModelOptions with_head = options;
      CHORAL_TRY(with_head.head, read_head(config, wanted_class.kind));
      return family.make(config, with_head);
    }
  }
  return unsupported("{}: no model family here is called '{}'; known: {}", config.path_of("architectures"),
                     fmt::join(wanted, ", "), fmt::join(known_architectures(), ", "));
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const auto& family : kFamilies) names.emplace_back(family.architecture);
  return names;
}

}  // namespace choral::models
