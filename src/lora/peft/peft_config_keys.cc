// The keys of adapter_config.json that are not read into fields: which may be there, which are refused and why; and combinations
// that PEFT itself refuses.
#include <algorithm>
#include <array>

#include "base/printable.h"
#include "lora/peft/peft_helper.h"

namespace choral::lora {
namespace {

using io::ConfigValue;

// Null, false, "", [] and {}: what a config holds for a feature that is not used.
bool is_unused(const ConfigValue& value) {
  if (value.is_null()) return true;
  if (const bool* flag = value.if_bool()) return !*flag;
  if (const auto* text = value.if_string()) return text->empty();
  if (const auto* array = value.if_array()) return array->empty();
  if (const auto* object = value.if_object()) return object->members().empty();
  return false;
}

// Keys that peft_config_reader.cc reads.
constexpr std::array<std::string_view, 28> kRead{"r",
                                                 "lora_alpha",
                                                 "target_modules",
                                                 "bias",
                                                 "modules_to_save",
                                                 "use_rslora",
                                                 "use_dora",
                                                 "lora_bias",
                                                 "fan_in_fan_out",
                                                 "ensure_weight_tying",
                                                 "rank_pattern",
                                                 "alpha_pattern",
                                                 "layers_to_transform",
                                                 "layers_pattern",
                                                 "exclude_modules",
                                                 "trainable_token_indices",
                                                 "init_lora_weights",
                                                 "target_parameters",
                                                 "base_model_name_or_path",
                                                 "peft_type",
                                                 "peft_version",
                                                 "task_type",
                                                 "alora_invocation_tokens",
                                                 "context_length",
                                                 "vllm_max_position_embeddings",
                                                 "vllm_long_context_scaling_factor",
                                                 "max_position_embeddings",
                                                 "long_context_scaling_factor"};

struct ExplainedKey {
  std::string_view key, reason;
};
// Keys that change nothing at inference, and why.
constexpr std::array<ExplainedKey, 14> kHarmless{{
    {"lora_dropout", "acts in training only"},
    {"inference_mode", "acts in training only"},
    {"revision", "names a version of the base"},
    {"auto_mapping", "names Python classes"},
    {"megatron_core", "names a Python package"},
    {"loftq_config", "acts at initialisation only, and only with init_lora_weights = loftq"},
    {"eva_config", "acts at initialisation only; the base is left alone"},
    {"corda_config", "acts only with init_lora_weights = corda"},
    {"lora_ga_config", "acts only with init_lora_weights = lora_ga"},
    {"qalora_group_size", "acts only with use_qalora"},
    {"runtime_config", "is not part of the adapter"},
    {"merge_weights", "says how PEFT runs it, not what it computes"},
    {"modules_mapping", "names Python classes"},
    {"model_type", "names the base"},
}};

constexpr std::array<ExplainedKey, 10> kRefused{{
    {"layer_replication", "it builds a deeper model out of the base's layers; merge it into a model of its own"},
    {"use_qalora", "QALoRA pools the input of A; merge it, or retrain as plain LoRA"},
    {"use_bdlora", "block-diagonal LoRA is not supported; merge it, or retrain as plain LoRA"},
    {"megatron_config", "Megatron's parallel layers store other matrices; save the adapter from the Hugging Face model"},
    {"arrow_config", "Arrow routes between adapters by learned prototypes, which is not supported"},
    {"kasa_config", "KaSA rescales by a learned spectrum, which is not supported"},
    {"monteclora_config", "MonteCLoRA is not supported"},
    {"velora_config", "VeLoRA is not supported"},
    {"enable_lora", "the merged-projection form of old PEFT versions is not supported; save it with a current PEFT"},
    {"alora_invocation_string", "aLoRA is described by alora_invocation_tokens; add the string's token ids under that key"},
}};

}  // namespace

// Flags, lists and objects that nobody here knows may be a new kind of adapter: refused. Unknown numbers and texts only qualify
// something that a flag or object would switch on, or describe the file: noted.
void PEFTHelper::check_other_keys(const io::ConfigMap& config) {
  for (const auto& member : config.members()) {
    const std::string_view key = member.key;
    if (std::find(kRead.begin(), kRead.end(), key) != kRead.end() || is_unused(member.value)) continue;
    const auto same_key = [&](const auto& entry) { return entry.key == key; };
    const auto harmless = std::find_if(kHarmless.begin(), kHarmless.end(), same_key);
    const auto refused = std::find_if(kRefused.begin(), kRefused.end(), same_key);
    if (harmless != kHarmless.end()) {
      notes.push_back(fmt::format("{}: {}", harmless->key, harmless->reason));
    } else if (refused != kRefused.end()) {
      problems_.add(unsupported("{}: {}", refused->key, refused->reason));
    } else if (member.value.if_bool() || member.value.if_array() || member.value.if_object()) {
      problems_.add(
          unsupported("'{}' is a key that this version does not know and that may change the result; remove it if it does not",
                      printable(key)));
    } else if (notes.size() < 64) {
      notes.push_back(fmt::format("{}: unknown to this version", printable(key)));
    }
  }
}

// What PEFT's LoraConfig itself refuses.
void PEFTHelper::check_together() {
  if (target_pattern && layers_to_transform) {
    problems_.add(invalid_argument("layers_to_transform cannot be used with target_modules as a pattern (PEFT refuses it too)"));
  }
  if (target_pattern && !layers_pattern.empty()) {
    problems_.add(invalid_argument("layers_pattern cannot be used with target_modules as a pattern (PEFT refuses it too)"));
  }
  if (!layers_pattern.empty() && (!layers_to_transform || layers_to_transform->empty())) {
    problems_.add(invalid_argument("layers_pattern without layers_to_transform says nothing (PEFT refuses it too)"));
  }
  if (!target_parameters.empty() && (use_dora || lora_bias)) {
    problems_.add(
        unsupported("target_parameters cannot be used with {} (PEFT refuses it too)", use_dora ? "use_dora" : "lora_bias"));
  }
  if (lora_bias && use_dora) problems_.add(unsupported("lora_bias cannot be used with use_dora (PEFT refuses it too)"));
}

}  // namespace choral::lora
