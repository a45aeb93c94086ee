#include "lora/peft/peft_helper.h"

#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "lora/peft/fused_experts.h"
#include "lora/peft/module_names.h"

namespace choral::lora {
namespace {

bool any_is_end_of(const std::vector<std::string>& names, std::string_view module) {
  return std::any_of(names.begin(), names.end(), [&](const auto& name) { return is_end_of(name, module); });
}

// PEFT never adapts a saved module or what lies inside it: r"(^|.*\.)name($|\..*)".
bool any_names_part_of(const std::vector<std::string>& names, std::string_view module) {
  return std::any_of(names.begin(), names.end(), [&](const auto& name) {
    for (size_t at = module.find(name); at != std::string_view::npos; at = module.find(name, at + 1)) {
      const size_t end = at + name.size();
      if ((at == 0 || module[at - 1] == '.') && (end == module.size() || module[end] == '.')) return true;
    }
    return false;
  });
}

// What PEFT's default for layers_pattern, r".*\.[^.]*\.(\d+)\.", finds: the last piece made of digits only that has two or more
// pieces before it and one behind; -1 when there is none.
int64_t layer_index(std::string_view module) {
  size_t end = module.rfind('.');
  while (end != std::string_view::npos && end > 0) {
    const size_t begin = module.rfind('.', end - 1);
    if (begin == std::string_view::npos) return -1;
    const std::string_view piece = module.substr(begin + 1, end - begin - 1);
    const bool digits = !piece.empty() && piece.size() <= 9 &&
                        std::all_of(piece.begin(), piece.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits && module.substr(0, begin).find('.') != std::string_view::npos) return std::stoll(std::string(piece));
    end = begin;
  }
  return -1;
}

}  // namespace

bool PEFTHelper::is_saved_by(std::string_view wanted, std::string_view module) {
  for (size_t end = module.find('.'); end != std::string_view::npos; end = module.find('.', end + 1)) {
    if (module.substr(0, end).ends_with(wanted)) return true;
  }
  return module.ends_with(wanted);
}

Result<int64_t> PEFTHelper::PatternTable::first_match(std::string_view module) const {
  for (size_t i = 0; i < patterns.size(); ++i) {
    CHORAL_TRY(const bool found, patterns[i].matches(module));
    if (found) return static_cast<int64_t>(i);
  }
  return int64_t{-1};
}

Result<int64_t> PEFTHelper::rank_for(std::string_view module) const {
  CHORAL_TRY(const int64_t at, ranks_.first_match(module));
  return at < 0 ? r : rank_pattern[at].second;
}

Result<double> PEFTHelper::alpha_for(std::string_view module) const {
  CHORAL_TRY(const int64_t at, alphas_.first_match(module));
  return at < 0 ? lora_alpha : alpha_pattern[at].second;
}

Result<double> PEFTHelper::scaling_for(std::string_view module, int64_t rank) const {
  CHORAL_TRY(const double alpha, alpha_for(module));
  if (gguf_architecture && alpha == 0) return 1.0;  // llama.cpp: no alpha, no scale
  const auto divisor = static_cast<double>(rank);
  return use_rslora ? alpha / std::sqrt(divisor) : alpha / divisor;
}

Result<double> PEFTHelper::scaling_for(std::string_view module) const {
  CHORAL_TRY(const int64_t rank, rank_for(module));
  return scaling_for(module, rank);
}

std::string PEFTHelper::first_kind() const {
  if (peft_type != "LORA") return printable(peft_type);
  return use_dora ? "DoRA" : "LoRA";
}

std::string PEFTHelper::kind() const {
  std::string kind = first_kind();
  if (use_rslora) kind += ", rsLoRA";
  if (!alora_invocation_tokens.empty()) kind += ", aLoRA";
  if (!modules_to_save.empty()) kind += ", modules_to_save";
  if (!trainable_token_indices.empty()) kind += ", trainable tokens";
  return kind;
}

int64_t PEFTHelper::largest_rank() const {
  int64_t largest = r;
  for (const auto& entry : rank_pattern) largest = std::max(largest, entry.second);
  return largest;
}

bool PEFTHelper::saves(std::string_view module) const {
  return std::any_of(modules_to_save.begin(), modules_to_save.end(), [&](const auto& name) { return is_saved_by(name, module); });
}

Result<bool> PEFTHelper::in_layers(std::string_view module) const {
  if (!layers_to_transform || layers_to_transform->empty()) return true;
  int64_t layer = -1;
  if (layer_regexes_.empty()) {
    layer = layer_index(module);
  } else {
    for (const auto& pattern : layer_regexes_) {
      CHORAL_TRY(layer, pattern.layer_of(module));
      if (layer >= 0) break;
    }
  }
  return layer >= 0 && std::find(layers_to_transform->begin(), layers_to_transform->end(), layer) != layers_to_transform->end();
}

Result<bool> PEFTHelper::targets(std::string_view module, TargetKind kind) const {
  if (!targets_known || names_parameter_of(target_parameters, module) || names_weight_of(target_parameters, module)) return true;
  if (exclude_regex_) {
    CHORAL_TRY(const bool excluded, exclude_regex_->matches(module));
    if (excluded) return false;
  }
  if (any_is_end_of(exclude_modules, module)) return false;
  if (any_names_part_of(modules_to_save, module)) return false;
  if (all_linear) return kind == TargetKind::kLinear;
  if (target_regex_) return target_regex_->matches(module);
  // A name in full is taken whatever its layer; PEFT asks for the layer only where a name's end matched.
  if (std::find(target_modules.begin(), target_modules.end(), module) != target_modules.end()) return true;
  if (!any_is_end_of(target_modules, module)) return false;
  return in_layers(module);
}

Status PEFTHelper::check_unchanged() const { return stamp_ ? io::check_unchanged(source, *stamp_) : Status(); }

Status PEFTHelper::validate_legal(const LoRAConfig& config) const {
  ProblemList all = problems_;
  if (largest_rank() > config.max_lora_rank) {
    all.add(too_large("{} {} is over the limit of {}; {}", largest_rank() == r ? "r:" : "rank_pattern: rank", largest_rank(),
                      config.max_lora_rank, LoRAConfig::rank_advice(largest_rank())));
  }
  if (!config.bias_enabled && lora_bias) all.add(unsupported("lora_bias: adapters with biases are switched off (bias_enabled)"));
  if (!config.bias_enabled && bias == PEFTBias::kAll) {
    all.add(unsupported("bias: \"all\" needs bias_enabled, which is switched off"));
  }
  return all.to_status(source);
}

std::optional<std::filesystem::path> gguf_adapter_path(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return path;
  if (!std::filesystem::is_directory(path, ignored)) return std::nullopt;
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt"}) {
    if (std::filesystem::exists(path / name, ignored)) return std::nullopt;
  }
  std::optional<std::filesystem::path> found;
  size_t entries = 0;
  for (std::filesystem::directory_iterator it(path, ignored), end; !ignored && it != end; it.increment(ignored)) {
    if (++entries > 10'000) return std::nullopt;
    if (it->path().extension() != ".gguf") continue;
    if (found) return std::nullopt;
    found = it->path();
  }
  return found;
}

}  // namespace choral::lora
