// How PEFTHelper comes out of adapter_config.json: every key PEFT's LoraConfig has known. What is done with other keys stands in
// peft_config_keys.cc.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/printable.h"
#include "io/model_location.h"
#include "lora/peft/adapter_bytes.h"
#include "lora/peft/fused_experts.h"
#include "lora/peft/peft_helper.h"

namespace choral::lora {
namespace {

using io::ConfigValue;

Status too_many(const io::ConfigMap& config, std::string_view key, size_t count, size_t limit) {
  return too_large("{} has {} entries; {} are allowed", config.path_of(key), count, limit);
}

// A string or a list of strings.
Result<std::vector<std::string>> strings_or_one(const io::ConfigMap& config, std::string_view key) {
  const ConfigValue* value = config.find(key);
  if (value == nullptr) return std::vector<std::string>{};
  if (const auto* text = value->if_string()) return std::vector<std::string>{*text};
  return config.get_strings(key);
}

}  // namespace

Status PEFTHelper::read_targets(const io::ConfigMap& config, const PEFTLimits& limits) {
  const auto pattern_of = [&](std::string_view key, const std::string& text) -> std::optional<io::ModulePattern> {
    auto pattern = io::ModulePattern::compile(text, io::ModulePattern::Mode::kFull);
    if (pattern.ok()) return std::move(*pattern);
    problems_.add(std::move(pattern).status().while_(key));
    return std::nullopt;
  };
  const ConfigValue* value = config.find("target_modules");
  const auto* text = value != nullptr ? value->if_string() : nullptr;
  if (text != nullptr && *text == "all-linear") {
    all_linear = true;
  } else if (text != nullptr && !text->empty()) {
    target_pattern = *text;
    target_regex_ = pattern_of("target_modules", *text);
  } else if (value != nullptr && text == nullptr) {
    CHORAL_TRY(target_modules, config.get_strings("target_modules"));
    if (target_modules.size() > limits.max_names) {
      return too_many(config, "target_modules", target_modules.size(), limits.max_names);
    }
  }
  CHORAL_TRY(target_parameters, config.get_strings_or_empty("target_parameters"));
  if (target_parameters.size() > limits.max_names) {
    return too_many(config, "target_parameters", target_parameters.size(), limits.max_names);
  }
  for (const auto& parameter : target_parameters) {
    if (is_parameter(parameter)) continue;
    problems_.add(
        unsupported("target_parameters: '{}' is neither a parameter of experts (gate_up_proj, down_proj) nor a module's weight; "
                    "adapters of other parameters are not served",
                    printable(parameter)));
  }
  if (target_parameters.empty() && target_modules.empty() && !target_pattern && !all_linear) {
    problems_.add(invalid_argument("target_modules is missing; PEFT writes the adapted modules' names there"));
  }

  value = config.find("exclude_modules");
  if (text = value != nullptr ? value->if_string() : nullptr; text != nullptr) {
    exclude_pattern = *text;
    if (!text->empty()) exclude_regex_ = pattern_of("exclude_modules", *text);
  } else {
    CHORAL_TRY(exclude_modules, config.get_strings_or_empty("exclude_modules"));
  }
  CHORAL_TRY(modules_to_save, config.get_strings_or_empty("modules_to_save"));
  for (const auto* names : {&exclude_modules, &modules_to_save}) {
    if (names->size() > limits.max_names) return too_many(config, "a list of modules", names->size(), limits.max_names);
  }
  std::erase(modules_to_save, "");
  return {};
}

Status PEFTHelper::read_scaling(const io::ConfigMap& config, const PEFTLimits& limits) {
  if (config.contains("r")) {
    CHORAL_TRY(r, config.get_int("r"));
    if (r <= 0) problems_.add(invalid_argument("r is {}; a rank is 1 or more", r));
  } else {
    problems_.add(invalid_argument("r is missing; it is the adapter's rank"));
  }
  if (config.contains("lora_alpha")) {
    CHORAL_TRY(lora_alpha, config.get_double("lora_alpha"));
    if (std::abs(lora_alpha) > kMostAlpha) problems_.add(invalid_argument("lora_alpha is {}, which is no scale", lora_alpha));
  } else {
    problems_.add(invalid_argument("lora_alpha is missing; without it the adapter's scale is unknown"));
  }
  CHORAL_TRY(use_rslora, config.get_bool_or("use_rslora", false));

  CHORAL_TRY(const io::ConfigMap by_rank, config.get_map_or_empty("rank_pattern"));
  CHORAL_TRY(const io::ConfigMap by_alpha, config.get_map_or_empty("alpha_pattern"));
  size_t regexes = 0;
  const auto count = [&](const io::ConfigMap& map) {
    for (const auto& member : map.members()) {
      auto pattern = io::ModulePattern::compile(member.key, io::ModulePattern::Mode::kSuffix);
      if (pattern.ok() && !pattern->is_plain()) ++regexes;
    }
  };
  for (const auto& [key, map] : {std::pair("rank_pattern", &by_rank), std::pair("alpha_pattern", &by_alpha)}) {
    if (map->members().size() > limits.max_names) return too_many(config, key, map->members().size(), limits.max_names);
    count(*map);
  }
  if (regexes > limits.max_regexes) {
    return too_large(
        "{}: rank_pattern and alpha_pattern have {} regular expressions; {} are allowed (plain names are not counted)",
        config.source(), regexes, limits.max_regexes);
  }
  // Together the patterns of one module get about the work of a single one.
  const auto steps = static_cast<uint32_t>(std::max<size_t>(1'000'000 / std::max<size_t>(regexes, 1), 10'000));
  const auto compile = [&](std::string_view table, std::string_view key, PatternTable& out) -> Status {
    CHORAL_TRY(auto pattern, io::ModulePattern::compile(key, io::ModulePattern::Mode::kSuffix, steps).while_(table));
    out.patterns.push_back(std::move(pattern));
    return {};
  };
  for (const auto& member : by_rank.members()) {
    CHORAL_TRY(const int64_t rank, by_rank.get_int(member.key));
    if (rank <= 0) problems_.add(invalid_argument("rank_pattern: '{}' is {}; a rank is 1 or more", printable(member.key), rank));
    if (Status status = compile("rank_pattern", member.key, ranks_); status.ok()) {
      rank_pattern.emplace_back(member.key, rank);
    } else {
      problems_.add(std::move(status));
    }
  }
  for (const auto& member : by_alpha.members()) {
    CHORAL_TRY(const double alpha, by_alpha.get_double(member.key));
    if (std::abs(alpha) > kMostAlpha) {
      problems_.add(invalid_argument("alpha_pattern: '{}' is {}, which is no scale", printable(member.key), alpha));
    }
    if (Status status = compile("alpha_pattern", member.key, alphas_); status.ok()) {
      alpha_pattern.emplace_back(member.key, alpha);
    } else {
      problems_.add(std::move(status));
    }
  }
  return {};
}

Status PEFTHelper::read_kinds(const io::ConfigMap& config) {
  CHORAL_TRY(peft_type, config.get_string_or("peft_type", "LORA"));
  if (peft_type != "LORA") {
    problems_.add(unsupported("peft_type '{}' is not supported; LORA is", printable(peft_type)));
  }
  CHORAL_TRY(task_type, config.get_string_or("task_type", ""));
  CHORAL_TRY(peft_version, config.get_string_or("peft_version", ""));
  CHORAL_TRY(base_model_name_or_path, config.get_string_or("base_model_name_or_path", ""));
  const auto known = {"", "CAUSAL_LM", "FEATURE_EXTRACTION", kClassesTask};
  if (std::find(known.begin(), known.end(), task_type) == known.end())
    notes.push_back("task_type: is " + printable(task_type) + ", not CAUSAL_LM, FEATURE_EXTRACTION or " + kClassesTask);
  CHORAL_TRY(use_dora, config.get_bool_or("use_dora", false));
  CHORAL_TRY(lora_bias, config.get_bool_or("lora_bias", false));
  CHORAL_TRY(fan_in_fan_out, config.get_bool_or("fan_in_fan_out", false));
  CHORAL_TRY(ensure_weight_tying, config.get_bool_or("ensure_weight_tying", false));
  if (fan_in_fan_out) notes.emplace_back("fan_in_fan_out: says how the base stores its weight; A and B are the same");

  CHORAL_TRY(const std::string kind, config.get_string_or("bias", "none"));
  if (kind == "all") {
    bias = PEFTBias::kAll;
  } else if (kind == "lora_only") {
    bias = PEFTBias::kLoraOnly;
    notes.emplace_back(
        "bias: PEFT does not save the biases of \"lora_only\" where a layer is wrapped; what the file has is used");
  } else if (kind != "none") {
    problems_.add(invalid_argument("bias is '{}'; it is none, all or lora_only", printable(kind)));
  }

  const ConfigValue* init = config.find("init_lora_weights");
  if (init == nullptr) return {};
  if (const bool* flag = init->if_bool()) {
    init_lora_weights = *flag ? "true" : "false";
    return {};
  }
  CHORAL_TRY(init_lora_weights, config.get_string("init_lora_weights"));
  constexpr std::array<std::string_view, 4> kBaseChanging{"olora", "corda", "loftq", "lora_ga"};
  constexpr std::array<std::string_view, 3> kBaseKept{"gaussian", "eva", "orthogonal"};
  if (init_lora_weights.starts_with("pissa") || std::count(kBaseChanging.begin(), kBaseChanging.end(), init_lora_weights) > 0) {
    problems_.add(unsupported(
        "init_lora_weights: '{}' changed the base's weights, so the adapter fits that changed base only; convert it to plain "
        "LoRA with PEFT: save_pretrained(..., path_initial_model_for_weight_conversion=<the initial adapter>), which subtracts "
        "the initialisation",
        printable(init_lora_weights)));
  } else if (std::count(kBaseKept.begin(), kBaseKept.end(), init_lora_weights) == 0) {
    problems_.add(unsupported("init_lora_weights: '{}' is unknown; if it leaves the base alone, write true there",
                              printable(init_lora_weights)));
  }
  return {};
}

Status PEFTHelper::read_layers(const io::ConfigMap& config, const PEFTLimits& limits) {
  if (config.contains("layers_to_transform")) {
    CHORAL_TRY(layers_to_transform, config.get_int_or_ints("layers_to_transform"));
    if (layers_to_transform->size() > limits.max_names) {
      return too_many(config, "layers_to_transform", layers_to_transform->size(), limits.max_names);
    }
  }
  CHORAL_TRY(layers_pattern, strings_or_one(config, "layers_pattern"));
  std::erase(layers_pattern, "");
  if (layers_pattern.size() > limits.max_regexes) {
    return too_many(config, "layers_pattern", layers_pattern.size(), limits.max_regexes);
  }
  for (const auto& pattern : layers_pattern) {
    auto compiled = io::ModulePattern::compile(pattern, io::ModulePattern::Mode::kLayer, 100'000);
    if (compiled.ok()) {
      layer_regexes_.push_back(std::move(*compiled));
    } else {
      problems_.add(std::move(compiled).status().while_("layers_pattern"));
    }
  }
  return {};
}

Status PEFTHelper::read_tokens(const io::ConfigMap& config, const PEFTLimits& limits) {
  const auto ids_of = [&](const io::ConfigMap& map, std::string_view key) -> Result<std::vector<int32_t>> {
    CHORAL_TRY(const std::vector<int64_t> ids, map.get_ints(key, io::kNotNegative));
    if (ids.size() > limits.max_token_ids) return too_many(map, key, ids.size(), limits.max_token_ids);
    return std::vector<int32_t>(ids.begin(), ids.end());
  };
  if (const ConfigValue* value = config.find("trainable_token_indices")) {
    if (value->if_object() != nullptr) {
      CHORAL_TRY(const io::ConfigMap map, config.get_map("trainable_token_indices"));
      if (map.members().size() > 16) return too_many(config, "trainable_token_indices", map.members().size(), 16);
      for (const auto& member : map.members()) {
        CHORAL_TRY(auto ids, ids_of(map, member.key));
        trainable_token_indices.emplace_back(member.key, std::move(ids));
      }
    } else {
      CHORAL_TRY(auto ids, ids_of(config, "trainable_token_indices"));
      if (!ids.empty()) trainable_token_indices.emplace_back("embed_tokens", std::move(ids));
    }
  }
  if (config.contains("alora_invocation_tokens")) {
    CHORAL_TRY(alora_invocation_tokens, ids_of(config, "alora_invocation_tokens"));
    if (alora_invocation_tokens.size() > 4096) {
      return too_many(config, "alora_invocation_tokens", alora_invocation_tokens.size(), 4096);
    }
  }
  return {};
}

Status PEFTHelper::read_long_context(const io::ConfigMap& config) {
  CHORAL_TRY(context_length, config.get_int_or("context_length", 0, io::kNotNegative));
  for (const char* key : {"max_position_embeddings", "vllm_max_position_embeddings"}) {
    if (!config.contains(key)) continue;
    CHORAL_TRY(vllm_max_position_embeddings, config.get_int(key, io::kPositive));
  }
  for (const char* key : {"long_context_scaling_factor", "vllm_long_context_scaling_factor"}) {
    if (!config.contains(key)) continue;
    CHORAL_TRY(vllm_long_context_scaling_factor, config.get_double(key));
  }
  if (context_length > 0) {
    if (!vllm_max_position_embeddings) vllm_max_position_embeddings = context_length;
    vllm_long_context_scaling_factor =
        std::ceil(static_cast<double>(context_length) / static_cast<double>(*vllm_max_position_embeddings));
  }
  if (vllm_long_context_scaling_factor && *vllm_long_context_scaling_factor != 1.0) {
    problems_.add(
        unsupported("context_length: the adapter stretches the base's context by {}, which is not supported; serve it on "
                    "a base with that rope scaling",
                    *vllm_long_context_scaling_factor));
  }
  return {};
}

Result<PEFTHelper> PEFTHelper::from_config(const io::ConfigMap& config, const PEFTLimits& limits) {
  PEFTHelper out;
  out.source = config.source();
  CHORAL_RETURN_IF_ERROR(out.read_kinds(config));
  CHORAL_RETURN_IF_ERROR(out.read_targets(config, limits));
  CHORAL_RETURN_IF_ERROR(out.read_scaling(config, limits));
  CHORAL_RETURN_IF_ERROR(out.read_layers(config, limits));
  CHORAL_RETURN_IF_ERROR(out.read_tokens(config, limits));
  CHORAL_RETURN_IF_ERROR(out.read_long_context(config));
  out.check_other_keys(config);
  out.check_together();
  return out;
}

namespace {

// A GGUF file may have any name. Who names one file of an adapter in PEFT's form has its folder in mind.
Status check_named_file(const std::filesystem::path& path) {
  CHORAL_TRY(const io::FileKind kind, io::file_kind(path));
  if (kind == io::FileKind::kGguf || path.extension() == ".gguf") return {};
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (io::is_file(folder / "adapter_config.json")) {
    return invalid_argument("{} is one file of an adapter in PEFT's form; give its folder, {}", path.string(), folder.string());
  }
  return unsupported("{} is no adapter: it is not a GGUF file, and no adapter_config.json stands beside it", path.string());
}

io::JsonLimits json_limits(const PEFTLimits& limits) { return {.max_bytes = limits.max_config_bytes, .max_depth = 16}; }

}  // namespace

Result<PEFTHelper> PEFTHelper::from_local_dir(const std::filesystem::path& path, const PEFTLimits& limits) {
  if (const auto gguf = gguf_adapter_path(path)) {
    CHORAL_RETURN_IF_ERROR(check_named_file(*gguf));
    CHORAL_TRY(const auto file, io::GgufFile::open(*gguf));
    return from_gguf(*file);
  }
  const std::filesystem::path file = path / "adapter_config.json";
  CHORAL_TRY(const io::FileStamp stamp, io::file_stamp(file));
  const auto config = io::ConfigMap::read_json_file(file, json_limits(limits));
  if (!config.ok()) {
    // Half a config is no sign of a broken one when somebody is writing to it.
    CHORAL_RETURN_IF_ERROR(io::check_unchanged(file, stamp));
    return config.status();
  }
  CHORAL_TRY(PEFTHelper out, from_config(*config, limits));
  out.stamp_ = stamp;
  return out;
}

Result<PEFTHelper> read_config_bytes(const HeldFiles& files) {
  if (const std::string* const gguf = gguf_name(files); gguf != nullptr) {
    CHORAL_TRY(const auto file, io::GgufFile::parse(files.find(*gguf)->second));
    return PEFTHelper::from_gguf(*file);
  }
  constexpr std::string_view kConfig = "adapter_config.json";
  const auto found = files.find(kConfig);
  if (found == files.end()) return not_found("there is no {}", kConfig);
  const auto bytes = found->second->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  CHORAL_TRY(const auto config, io::ConfigMap::parse_json(text, found->second->path(), json_limits({})));
  return PEFTHelper::from_config(config);
}

}  // namespace choral::lora
