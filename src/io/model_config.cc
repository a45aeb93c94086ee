#include "io/model_config.h"

#include <array>
#include <optional>

#include "io/class_defaults.h"
#include "io/dense_stages.h"
#include "io/model_location.h"
#include "io/text_half.h"

namespace choral::io {
namespace {

// Equal as configuration: 10000 and 10000.0 are.
bool same(const ConfigValue& a, const ConfigValue& b) {
  if (const auto x = a.as_double(), y = b.as_double(); x && y) return *x == *y;
  return a.to_json() == b.to_json();
}

// Sets `key`, unless the map says otherwise already.
Status adopt(const ConfigMap& config, ConfigObject& out, std::string_view key, const ConfigValue& value, std::string_view from) {
  const ConfigValue* there = out.find(key);
  if (there != nullptr && there->is_null()) there = nullptr;
  if (there != nullptr && !same(*there, value)) {
    return corrupt("{} is {}, but {} says {}; remove one of the two", config.path_of(key), there->to_json(), from,
                   value.to_json());
  }
  if (there == nullptr) out.set(key, value);
  return {};
}

// rope_scaling as transformers 4 spells it: `rope_type` and never `type`. Null when the type is "default", which scales nothing.
Result<ConfigValue> tidy_rope_scaling(const ConfigMap& scaling) {
  ConfigObject out = scaling.object();
  CHORAL_TRY(std::string type, scaling.get_string_or("rope_type", ""));
  if (type.empty()) {
    CHORAL_TRY(type, scaling.get_string("type"));
  }
  if (type == "default") return ConfigValue();
  out.erase("type");
  out.set("rope_type", type == "su" ? std::string("longrope") : type);  // "su": what longrope was first called
  return ConfigValue(std::move(out));
}

// For how many positions a model was first trained: stands in the scaling, or beside it, as Phi-3 has it with longrope.
Status adopt_original_positions(const ConfigMap& config, ConfigObject& out) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  const ConfigValue* scaling = out.find("rope_scaling");
  const ConfigValue* positions = config.find(kKey);
  if (positions == nullptr || scaling == nullptr || scaling->if_object() == nullptr) return {};
  ConfigObject whole = *scaling->if_object();
  const ConfigValue* type = whole.find("rope_type");
  const auto is = [type](std::string_view name) { return type->if_string() != nullptr && *type->if_string() == name; };
  if (type == nullptr || !(is("longrope") || is("yarn") || is("llama3"))) return {};
  if (const ConfigValue* inner = whole.find(kKey); inner != nullptr && !same(*inner, *positions)) {
    return corrupt("{} is {}, but within rope_scaling it is {}; remove one of the two", config.path_of(kKey),
                   positions->to_json(), inner->to_json());
  }
  whole.set(kKey, *positions);
  out.set("rope_scaling", std::move(whole));
  return {};
}

// One flat object: theta and partial factor move out; the rest is the scaling, nothing where there is none.
Result<std::optional<ConfigValue>> take_scaling(const ConfigMap& config, const ConfigMap& rope, ConfigObject& out) {
  ConfigObject scaling = rope.object();
  for (const std::string_view key : {"rope_theta", "partial_rotary_factor"}) {
    if (const ConfigValue* value = rope.find(key)) CHORAL_RETURN_IF_ERROR(adopt(config, out, key, *value, rope.path_of(key)));
    scaling.erase(key);
  }
  if (scaling.members().empty()) return std::optional<ConfigValue>();
  std::string path = rope.path_of("");
  if (path.ends_with('.')) path.pop_back();
  CHORAL_TRY(auto tidy, tidy_rope_scaling(ConfigMap(std::move(scaling), path)));
  return std::optional(std::move(tidy));
}

// `out` has the old spelling's already, where the config has both.
Status adopt_rope_parameters(const ConfigMap& config, const ConfigMap& rope, ConfigObject& out) {
  CHORAL_TRY(const auto scaling, take_scaling(config, rope, out));
  if (!scaling) return {};
  if (config.contains("rope_scaling") && !same(*out.find("rope_scaling"), *scaling)) {
    return corrupt("{} contradicts rope_parameters; remove one of the two", config.path_of("rope_scaling"));
  }
  out.set("rope_scaling", *scaling);
  return {};
}

// Per layer type, as Gemma 3 has it: the full-attention layers give the theta and scaling, the sliding ones their own base.
Status adopt_rope_per_layer_type(const ConfigMap& config, const ConfigMap& rope, ConfigObject& out) {
  for (const auto& member : rope.members()) {
    if (member.key != "full_attention" && member.key != "sliding_attention" && !member.value.is_null()) {
      return unsupported("{}: rope settings of this layer type are not supported", rope.path_of(member.key));
    }
  }
  if (rope.contains("full_attention")) {
    CHORAL_TRY(const ConfigMap full, rope.get_map("full_attention"));
    CHORAL_RETURN_IF_ERROR(adopt_rope_parameters(config, full, out));
  }
  if (!rope.contains("sliding_attention")) return {};
  CHORAL_TRY(const ConfigMap sliding, rope.get_map("sliding_attention"));
  CHORAL_TRY(const std::string old_type, sliding.get_string_or("type", "default"));
  CHORAL_TRY(const std::string type, sliding.get_string_or("rope_type", old_type));
  if (type != "default") return unsupported("{}: only the type 'default' is supported", sliding.path_of("rope_type"));
  const ConfigValue* theta = sliding.find("rope_theta");
  if (theta == nullptr) return {};
  return adopt(config, out, "rope_local_base_freq", *theta, sliding.path_of("rope_theta"));
}

bool has_layer_types(const ConfigMap& rope) {
  for (const auto& member : rope.members()) {
    if (member.value.if_object() != nullptr) return true;
  }
  return false;
}

// The experts that a router chooses among, and those that it chooses, which each family calls otherwise, as num_experts and
// num_experts_per_tok.
Status adopt_experts(const ConfigMap& config, ConfigObject& out) {
  const ConfigValue* first = nullptr;
  for (const char* name : {"num_local_experts", "n_routed_experts", "moe_num_experts"}) {
    const ConfigValue* value = config.find(name);
    if (value == nullptr) continue;
    if (first == nullptr) first = value;
    if (!same(*first, *value))
      return corrupt("{} is {}, another name for it says {}; remove one of the two", config.path_of(name), value->to_json(),
                     first->to_json());
    CHORAL_RETURN_IF_ERROR(adopt(config, out, "num_experts", *value, config.path_of(name)));
    out.erase(name);
  }
  for (const char* name : {"moe_k", "moe_topk", "top_k_experts"}) {
    const ConfigValue* chosen = config.find(name);
    if (chosen == nullptr) continue;
    CHORAL_RETURN_IF_ERROR(adopt(config, out, "num_experts_per_tok", *chosen, config.path_of(name)));
    out.erase(name);
  }
  return {};
}

// What layers are, by the names of transformers 5: hybrids had others.
void adopt_layer_types(ConfigObject& out) {
  constexpr std::string_view kKey = "layer_types", kOldKey = "layers_block_type";
  const ConfigValue* types = out.find(kKey);
  if (types == nullptr || types->is_null()) types = out.find(kOldKey);
  if (types == nullptr || types->if_array() == nullptr) return;
  ConfigArray renamed = *types->if_array();
  for (ConfigValue& type : renamed) {
    if (type.if_string() == nullptr) continue;
    if (*type.if_string() == "attention") type = "full_attention";
    if (*type.if_string() == "mamba") type = "linear_attention";
  }
  out.set(kKey, std::move(renamed));
}

constexpr JsonLimits kConfigLimits{.max_bytes = 16 << 20, .max_values = 500'000};

// ModelSlim describes its checkpoints in a file of their own and takes quantization_config out of config.json.
Result<ConfigMap> adopt_modelslim(const std::filesystem::path& directory, ConfigMap config) {
  const auto file = directory / "quant_model_description.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return config;
  if (config.contains("quantization_config")) {
    return corrupt("{} stands beside {}; a checkpoint is quantised in one way: remove one of the two",
                   config.path_of("quantization_config"), file.string());
  }
  CHORAL_TRY(const ConfigMap description, ConfigMap::read_json_file(file, kConfigLimits));
  ConfigObject quantization = description.object();
  quantization.set("quant_method", "modelslim");
  ConfigObject out = config.object();
  out.set("quantization_config", std::move(quantization));
  return ConfigMap(std::move(out), config.source());
}

// What stands behind the pooling, as the model's own.
Result<ConfigMap> adopt_dense_stages(const std::filesystem::path& directory, ConfigMap config) {
  CHORAL_TRY(const auto stages, read_dense_stages(directory));
  if (stages.empty()) return config;
  ConfigArray layers;
  for (const auto& stage : stages) {
    ConfigObject layer;
    layer.set("in_features", stage.in);
    layer.set("out_features", stage.out);
    layer.set("bias", stage.bias);
    layer.set("is_tanh", stage.is_tanh);
    layers.push_back(std::move(layer));
  }
  ConfigObject out = config.object();
  out.set("embedding_layers", std::move(layers));
  return ConfigMap(std::move(out), config.source());
}

}  // namespace

Result<ConfigMap> normalise_model_config(const ConfigMap& config) {
  ConfigObject out = config.object();
  if (config.contains("rope_scaling")) {
    CHORAL_TRY(const ConfigMap scaling, config.get_map("rope_scaling"));
    CHORAL_TRY(auto tidy, take_scaling(config, scaling, out));
    out.set("rope_scaling", std::move(tidy).value_or(ConfigValue()));
  }
  if (config.contains("rope_parameters")) {
    CHORAL_TRY(const ConfigMap rope, config.get_map("rope_parameters"));
    CHORAL_RETURN_IF_ERROR(has_layer_types(rope) ? adopt_rope_per_layer_type(config, rope, out)
                                                 : adopt_rope_parameters(config, rope, out));
    out.erase("rope_parameters");
  }
  CHORAL_RETURN_IF_ERROR(adopt_original_positions(config, out));
  if (const ConfigValue* dtype = config.find("dtype")) {
    CHORAL_RETURN_IF_ERROR(adopt(config, out, "torch_dtype", *dtype, config.path_of("dtype")));
    out.erase("dtype");
  }
  CHORAL_RETURN_IF_ERROR(adopt_experts(config, out));
  adopt_layer_types(out);
  return with_class_defaults(ConfigMap(std::move(out), config.source()));
}

// Who names a file of weights has its folder in mind.
Status check_beside_weights(const ModelLocation& location) {
  if (location.kind != ModelLocation::Kind::kSafetensors) return {};
  if (is_file(location.directory / "model.safetensors.index.json") && location.file.filename() != "model.safetensors") {
    return invalid_argument("{} is one of several files that hold a model's weights; give their folder, {}",
                            location.file.string(), location.directory.string());
  }
  if (is_file(location.directory / "config.json")) return {};
  if (is_file(location.directory / "adapter_config.json")) {
    return invalid_argument("{} belongs to an adapter, which needs its base: give the base as the model, and --lora {}",
                            location.file.string(), location.directory.string());
  }
  return not_found(
      "{} holds weights alone, and no config.json stands beside it; give a model's whole folder (`choral pull "
      "org/name` fetches one) or a GGUF file",
      location.file.string());
}

Result<ConfigMap> load_model_config(const std::filesystem::path& path) {
  CHORAL_TRY(const ModelLocation location, locate_model(path));
  return load_model_config(location);
}

Result<ConfigMap> load_model_config(const ModelLocation& location) {
  if (location.kind == ModelLocation::Kind::kGguf) return model_config_from_gguf(*location.gguf);
  CHORAL_RETURN_IF_ERROR(check_beside_weights(location));
  CHORAL_TRY(const ConfigMap raw, ConfigMap::read_json_file(location.directory / "config.json", kConfigLimits));
  CHORAL_TRY(const ConfigMap text, text_half_config(raw));
  CHORAL_TRY(ConfigMap normal, normalise_model_config(text));
  CHORAL_TRY(ConfigMap slim, adopt_modelslim(location.directory, std::move(normal)));
  CHORAL_TRY(ConfigMap config, adopt_dense_stages(location.directory, std::move(slim)));
  CHORAL_TRY(const auto architectures, config.get_strings("architectures"));
  if (architectures.empty()) return corrupt("{} is empty; it must name the model's class", config.path_of("architectures"));
  return config;
}

Result<ConfigMap> load_generation_config(const std::filesystem::path& path) {
  CHORAL_TRY(const ModelLocation location, locate_model(path));
  return load_generation_config(location);
}

Result<ConfigMap> load_generation_config(const ModelLocation& location) {
  if (location.kind == ModelLocation::Kind::kGguf) return generation_config_from_gguf(*location.gguf);
  const auto file = location.directory / "generation_config.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return ConfigMap(ConfigObject(), file.string());
  return ConfigMap::read_json_file(file, kConfigLimits);
}

}  // namespace choral::io
