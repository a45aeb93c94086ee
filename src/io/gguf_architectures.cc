// The architectures that are read from GGUF.
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/printable.h"
#include "io/gguf_layer_names.h"
#include "io/gguf_names.h"

namespace choral::io {
namespace {

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "chatglm", .hf_class = "GlmForCausalLM", .model_type = "glm", .in_layer = kMergedGateUp},
    {.name = "cohere2", .hf_class = "Cohere2ForCausalLM", .model_type = "cohere2", .layer_norm = true},
    {.name = "command-r", .hf_class = "CohereForCausalLM", .model_type = "cohere", .layer_norm = true},
    {.name = "deepseek2",
     .hf_class = "DeepseekV2ForCausalLM",
     .model_type = "deepseek_v2",
     .experts = true,
     .latent = true,
     .in_layer = kLatent,
     .joints = kKeysAndValues},
    {.name = "deepseek2",
     .hf_class = "DeepseekV3ForCausalLM",
     .model_type = "deepseek_v3",
     .experts = true,
     .sigmoid_gating = true,
     .latent = true,
     .in_layer = kLatent,
     .joints = kKeysAndValues},
    {.name = "deepseek32",
     .hf_class = "DeepseekV32ForCausalLM",
     .model_type = "deepseek_v32",
     .experts = true,
     .sigmoid_gating = true,
     .latent = true,
     .in_layer = kLatentWithIndexer,
     .joints = kKeysAndValues},
    {.name = "ernie4_5", .hf_class = "Ernie4_5ForCausalLM", .model_type = "ernie4_5"},
    {.name = "exaone4", .hf_class = "Exaone4ForCausalLM", .model_type = "exaone4", .in_layer = kNormsAfter},
    {.name = "deepseek2",  // the same equations: read as V3's
     .hf_class = "Glm4MoeLiteForCausalLM",
     .model_type = "glm4_moe_lite",
     .experts = true,
     .sigmoid_gating = true,
     .latent = true,
     .in_layer = kLatent,
     .joints = kKeysAndValues},
    {.name = "ernie4_5-moe",
     .hf_class = "Ernie4_5_MoeForCausalLM",
     .model_type = "ernie4_5_moe",
     .experts = true,
     .in_layer = kExpertsOfErnie},
    {.name = "gemma2", .hf_class = "Gemma2ForCausalLM", .model_type = "gemma2", .norms_hold_one = true, .in_layer = kFourNorms},
    {.name = "gemma3",
     .hf_class = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .norms_hold_one = true,
     .in_layer = kFourNorms},
    {.name = "gemma4", .hf_class = "Gemma4ForCausalLM", .model_type = "gemma4_text", .in_layer = kGemma4},
    {.name = "gemma4", .hf_class = "Gemma4ForCausalLM", .model_type = "gemma4_text", .experts = true, .in_layer = kGemma4},
    {.name = "gemma-embedding",
     .hf_class = "Gemma3TextModel",
     .model_type = "gemma3_text",
     .norms_hold_one = true,
     .in_layer = kFourNorms},
    {.name = "glm4", .hf_class = "Glm4ForCausalLM", .model_type = "glm4", .in_layer = kMergedWithFourNorms},
    {.name = "glm4moe",
     .hf_class = "Glm4MoeForCausalLM",
     .model_type = "glm4_moe",
     .experts = true,
     .sigmoid_gating = true,
     .in_layer = kSharedExperts},
    {.name = "glm4moe",  // GLM's equations: read as that
     .hf_class = "SolarOpenForCausalLM",
     .model_type = "solar_open",
     .experts = true,
     .sigmoid_gating = true,
     .in_layer = kSharedExperts},
    {.name = "gpt-oss",
     .hf_class = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .experts = true,
     .in_layer = kSinks,
     .joints = kGateAndUp},
    {.name = "granite", .hf_class = "GraniteForCausalLM", .model_type = "granite", .interleaved_qk = true},
    {.name = "granitehybrid",
     .hf_class = "GraniteMoeHybridForCausalLM",
     .model_type = "granitemoehybrid",
     .interleaved_qk = true,
     .mamba2 = true,
     .in_layer = kOfGraniteHybridDense,
     .joints = kInputLinear},
    {.name = "granitehybrid",
     .hf_class = "GraniteMoeHybridForCausalLM",
     .model_type = "granitemoehybrid",
     .interleaved_qk = true,
     .experts = true,
     .mamba2 = true,
     .in_layer = kOfGraniteHybrid,
     .joints = kLinearsOfGraniteMoe},
    {.name = "hunyuan-dense",
     .hf_class = "HunYuanDenseV1ForCausalLM",
     .model_type = "hunyuan_v1_dense",
     .in_layer = kTurnedHeadNorms},
    {.name = "hunyuan-moe",
     .hf_class = "HunYuanMoEV1ForCausalLM",
     .model_type = "hunyuan_v1_moe",
     .experts = true,
     .in_layer = kExpertsOfHunyuan},
    {.name = "granitemoe",
     .hf_class = "GraniteMoeSharedForCausalLM",
     .model_type = "granitemoeshared",
     .interleaved_qk = true,
     .experts = true,
     .in_layer = kOfGraniteMoe,
     .joints = kLinearsOfGraniteMoe},
    {.name = "granitemoe",  // the other without a shared expert: read as that
     .hf_class = "GraniteMoeForCausalLM",
     .model_type = "granitemoe",
     .interleaved_qk = true,
     .experts = true,
     .in_layer = kOfGraniteMoe,
     .joints = kLinearsOfGraniteMoe},
    {.name = "llama", .hf_class = "LlamaForCausalLM", .model_type = "llama", .interleaved_qk = true},
    {.name = "llama",
     .hf_class = "MixtralForCausalLM",
     .model_type = "mixtral",
     .interleaved_qk = true,
     .experts = true,
     .in_layer = kExpertsOfMixtral},
    {.name = "llama4",
     .hf_class = "Llama4ForCausalLM",
     .model_type = "llama4_text",
     .experts = true,
     .sigmoid_gating = true,
     .in_layer = kOfLlama4,
     .joints = kGateThenUpOfLlama4},
    {.name = "minimax-m2",
     .hf_class = "MiniMaxM2ForCausalLM",
     .model_type = "minimax_m2",
     .experts = true,
     .sigmoid_gating = true,
     .in_layer = kExpertsOfMiniMax},
    {.name = "mistral", .hf_class = "MistralForCausalLM", .model_type = "mistral", .interleaved_qk = true},
    {.name = "mistral3", .hf_class = "Ministral3ForCausalLM", .model_type = "ministral3", .interleaved_qk = true},
    {.name = "mistral4",
     .hf_class = "Mistral4ForCausalLM",
     .model_type = "mistral4",
     .experts = true,
     .latent = true,
     .in_layer = kLatent,
     .joints = kKeysAndValues},
    {.name = "olmo2", .hf_class = "Olmo2ForCausalLM", .model_type = "olmo2", .windows = false, .in_layer = kNormsAfter},
    {.name = "olmo2", .hf_class = "Olmo3ForCausalLM", .model_type = "olmo3", .windows = true, .in_layer = kNormsAfter},
    {.name = "olmoe", .hf_class = "OlmoeForCausalLM", .model_type = "olmoe", .experts = true, .in_layer = kExperts},
    {.name = "phi3", .hf_class = "Phi3ForCausalLM", .model_type = "phi3", .in_layer = kMerged},
    {.name = "phimoe", .hf_class = "PhiMoEForCausalLM", .model_type = "phimoe", .experts = true, .in_layer = kExpertsOfMixtral},
    {.name = "phimoe",  // the same by transformers' name: read as that
     .hf_class = "PhimoeForCausalLM",
     .model_type = "phimoe",
     .experts = true,
     .in_layer = kExpertsOfMixtral},
    {.name = "qwen2", .hf_class = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {.name = "qwen2moe",
     .hf_class = "Qwen2MoeForCausalLM",
     .model_type = "qwen2_moe",
     .experts = true,
     .in_layer = kGatedSharedExpert},
    {.name = "qwen3", .hf_class = "Qwen3ForCausalLM", .model_type = "qwen3"},
    {.name = "qwen35",
     .hf_class = "Qwen3_5ForCausalLM",
     .model_type = "qwen3_5_text",
     .norms_hold_one = true,
     .delta_nets = true,
     .tiled_value_heads = true,
     .in_layer = kDeltaNets},
    {.name = "qwen35moe",
     .hf_class = "Qwen3_5MoeForCausalLM",
     .model_type = "qwen3_5_moe_text",
     .experts = true,
     .norms_hold_one = true,
     .delta_nets = true,
     .tiled_value_heads = true,
     .in_layer = kDeltaNetsAndExperts},
    {.name = "qwen3next",
     .hf_class = "Qwen3NextForCausalLM",
     .model_type = "qwen3_next",
     .experts = true,
     .norms_hold_one = true,
     .delta_nets = true,
     .in_layer = kDeltaNetsInTurns,
     .joints = kQkvzOfDeltaNets},
    {.name = "qwen3moe", .hf_class = "Qwen3MoeForCausalLM", .model_type = "qwen3_moe", .experts = true, .in_layer = kExperts},
    {.name = "qwen2vl", .hf_class = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {.name = "qwen3vl", .hf_class = "Qwen3ForCausalLM", .model_type = "qwen3"},
    {.name = "seed_oss", .hf_class = "SeedOssForCausalLM", .model_type = "seed_oss", .in_layer = kSecondNorm},
    {.name = "smollm3", .hf_class = "SmolLM3ForCausalLM", .model_type = "smollm3", .interleaved_qk = true},
};

constexpr int64_t kSoftmax = 1, kSigmoid = 2;  // "….expert_gating_func"

}  // namespace

Result<GgufArchitecture> gguf_architecture(const GgufFile& file) {
  const ConfigMap& metadata = file.metadata();
  CHORAL_TRY(const std::string name, metadata.get_string("general.architecture"));
  CHORAL_TRY(const int64_t experts, metadata.get_int_or(name + ".expert_count", 0));
  const std::string gating_key = name + ".expert_gating_func";
  CHORAL_TRY(int64_t gating, metadata.get_int_or(gating_key, kSoftmax, {kSoftmax, kSigmoid}));
  CHORAL_TRY(const int64_t window, metadata.get_int_or(name + ".attention.sliding_window", 0));
  std::vector<std::string_view> known;
  const GgufArchitecture* found = nullptr;  // an adapter's file says no more than the name
  const auto fits = [&](const GgufArchitecture& a) {
    return a.experts == (experts > 0) && a.sigmoid_gating == (gating == kSigmoid) &&
           a.windows.value_or(window > 0) == (window > 0);
  };
  for (const auto& architecture : kArchitectures) {
    if (known.empty() || known.back() != architecture.name) known.push_back(architecture.name);
    if (architecture.name != name) continue;
    if (found == nullptr && !metadata.contains(gating_key)) gating = architecture.sigmoid_gating ? kSigmoid : kSoftmax;
    if (found == nullptr || (!fits(*found) && fits(architecture))) found = &architecture;
  }
  if (found == nullptr) {
    return unsupported("{}: the GGUF architecture '{}' is not supported ({} are); use the safetensors files", metadata.source(),
                       printable(name), fmt::join(known, ", "));
  }
  if (metadata.contains(name + ".expert_count") && found->experts != (experts > 0)) {
    return unsupported("{}.expert_count is {}; of {} only files with{} are read; use the safetensors files",
                       metadata.path_of(name), experts, name, found->experts ? " experts" : "out experts");
  }
  if (found->sigmoid_gating != (gating == kSigmoid)) {
    return unsupported("{} is {}; experts of {} are scored by a {} ({})", metadata.path_of(gating_key), gating, name,
                       found->sigmoid_gating ? "sigmoid" : "softmax", found->sigmoid_gating ? kSigmoid : kSoftmax);
  }
  return *found;
}

std::optional<GgufArchitecture> gguf_architecture_of(std::string_view hf_class, bool experts) {
  const GgufArchitecture* found = nullptr;
  for (const auto& architecture : kArchitectures) {
    if (architecture.hf_class != hf_class) continue;
    if (found == nullptr || (architecture.experts == experts && found->experts != experts)) found = &architecture;
  }
  return found == nullptr ? std::nullopt : std::optional(*found);
}

bool is_gguf_architecture_of(std::string_view name, std::string_view hf_class) {
  const auto of_file =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [&](const auto& a) { return a.name == name; });
  const auto of_model =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [&](const auto& a) { return a.hf_class == hf_class; });
  if (of_file == std::end(kArchitectures) || of_model == std::end(kArchitectures)) return false;
  const auto is_llama = [](const GgufArchitecture& a) { return a.name == "llama" || a.name.starts_with("mistral"); };
  return of_file->name == of_model->name || (is_llama(*of_file) && is_llama(*of_model));
}

}  // namespace choral::io
