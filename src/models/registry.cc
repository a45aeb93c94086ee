#include "models/registry.h"

#include <fmt/ranges.h>

#include "base/nearest_name.h"
#include "models/families.h"

namespace choral::models {
namespace {

struct Family {
  std::string_view architecture;
  Result<std::unique_ptr<Model>> (*make)(const io::ConfigMap&, const ModelOptions&);
};

constexpr Family kFamilies[] = {
    {"DeepseekV2ForCausalLM", make_deepseek_v2},
    {"DeepseekV3ForCausalLM", make_deepseek_v3},
    {"Gemma2ForCausalLM", make_gemma2},
    {"Gemma3ForCausalLM", make_gemma3},
    {"GptOssForCausalLM", make_gpt_oss},
    {"LlamaForCausalLM", make_llama},
    {"MistralForCausalLM", make_mistral},
    {"MixtralForCausalLM", make_mixtral},
    {"OlmoeForCausalLM", make_olmoe},
    {"Phi3ForCausalLM", make_phi3},
    {"Qwen2ForCausalLM", make_qwen2},
    {"Qwen3ForCausalLM", make_qwen3},
    {"Qwen3MoeForCausalLM", make_qwen3_moe},
};

}  // namespace

Result<std::unique_ptr<Model>> make_model(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(const auto wanted, config.get_strings("architectures"));
  for (const auto& architecture : wanted) {
    for (const auto& family : kFamilies) {
      if (family.architecture == architecture) return family.make(config, options);
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
