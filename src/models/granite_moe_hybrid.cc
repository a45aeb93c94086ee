// Granite 4: Granite 3's decoder, of whose layers most are Mamba-2 layers; those with attention may turn nothing with the
// position. An MLP of its own name, or a mixture beside it.
#include <algorithm>

#include "base/printable.h"
#include "models/families.h"

namespace choral::models {
namespace {

constexpr io::IntRange kMambaSize{1, 1 << 16}, kMambaTaps{2, kernels::CausalConv::kMostTaps};
constexpr int64_t kMostChannels = 1 << 20;  // of a convolution

Result<bool> read_rotates(const io::ConfigMap& config) {
  CHORAL_TRY(const std::string type, config.get_string_or("position_embedding_type", "nope"));
  if (type == "rope") return true;
  if (type == "nope") return false;
  return unsupported("{} is '{}'; known: nope, rope", config.path_of("position_embedding_type"), printable(type));
}

// One of time_step_limit's two numbers. JSON has no infinity, so transformers writes an object.
Result<float> read_limit(const io::ConfigMap& config, const io::ConfigValue& value) {
  const io::ConfigObject* const tagged = value.if_object();
  const io::ConfigValue* const name = tagged == nullptr ? nullptr : tagged->find("__float__");
  if (name != nullptr && name->if_string() != nullptr && *name->if_string() == "Infinity") {
    return std::numeric_limits<float>::infinity();
  }
  const auto number = value.as_double();
  if (number && *number >= 0) return static_cast<float>(*number);
  return corrupt("{}: {} is no number of 0 or more", config.path_of("time_step_limit"), value.to_json());
}

Status read_step_limits(const io::ConfigMap& config, layers::Mamba2::Spec& layer) {
  const io::ConfigValue* const limits = config.find("time_step_limit");
  if (limits == nullptr) return {};
  const io::ConfigArray* const both = limits->if_array();
  if (both == nullptr || both->size() != 2) {
    return corrupt("{} is {}, where two numbers are wanted", config.path_of("time_step_limit"), limits->to_json());
  }
  CHORAL_TRY(layer.least_step, read_limit(config, both->front()));
  CHORAL_TRY(layer.most_step, read_limit(config, both->back()));
  if (layer.least_step <= layer.most_step) return {};
  return corrupt("{}: the first is more than the second", config.path_of("time_step_limit"));
}

// "auto", or nothing: what is left for a head of all columns.
Result<int64_t> read_head_dim(const io::ConfigMap& config, int64_t columns, int64_t heads) {
  const io::ConfigValue* const said = config.find("mamba_d_head");
  const bool automatic = said == nullptr || (said->if_string() != nullptr && *said->if_string() == "auto");
  int64_t dim = columns / heads;
  if (!automatic) {
    CHORAL_TRY(dim, config.get_int("mamba_d_head", kMambaSize));
  }
  if (dim * heads == columns) return dim;
  return corrupt("{}: {} heads of {} are not mamba_expand times hidden_size, {}", config.path_of("mamba_n_heads"), heads, dim,
                 columns);
}

Result<Mamba2Spec> read_mamba2_spec(const io::ConfigMap& config, const DecoderSpec& decoder) {
  Mamba2Spec spec;
  auto& layer = spec.layer;
  CHORAL_TRY(layer.heads, config.get_int_or("mamba_n_heads", 128, kMambaSize));
  CHORAL_TRY(layer.groups, config.get_int_or("mamba_n_groups", 1, kMambaSize));
  CHORAL_TRY(layer.state_dim, config.get_int_or("mamba_d_state", 256, kMambaSize));
  CHORAL_TRY(layer.conv_taps, config.get_int_or("mamba_d_conv", 4, kMambaTaps));
  CHORAL_TRY(layer.conv_bias, config.get_bool_or("mamba_conv_bias", true));
  CHORAL_TRY(layer.proj_bias, config.get_bool_or("mamba_proj_bias", false));
  CHORAL_TRY(const int64_t expand, config.get_int_or("mamba_expand", 2, {1, 64}));
  CHORAL_TRY(layer.head_dim, read_head_dim(config, expand * decoder.hidden, layer.heads));
  if (layer.heads % layer.groups != 0) {
    return corrupt("{} ({}) is no multiple of mamba_n_groups ({})", config.path_of("mamba_n_heads"), layer.heads, layer.groups);
  }
  const int64_t channels = expand * decoder.hidden + 2 * layer.groups * layer.state_dim;
  if (channels > kMostChannels) {
    return too_large("{}: the convolution of a layer has {} channels; {} are the most", config.path_of("mamba_d_state"), channels,
                     kMostChannels);
  }
  if (decoder.hidden_act != "silu") {
    return unsupported("{} is '{}'; the convolutions of this family take silu", config.path_of("hidden_act"),
                       printable(decoder.hidden_act));
  }
  CHORAL_RETURN_IF_ERROR(read_step_limits(config, layer));
  return spec;
}

}  // namespace

Result<std::unique_ptr<Model>> make_granite_moe_hybrid(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_granite_spec(config, options));
  CHORAL_TRY(const bool rotates, read_rotates(config));
  spec.rotates.assign(spec.layers, rotates);
  CHORAL_TRY(auto states, read_state_layers(config, spec.layers));
  if (std::find(states.begin(), states.end(), true) != states.end()) {  // some models of this class have attention alone
    CHORAL_TRY(spec.mamba2, read_mamba2_spec(config, spec));
    spec.mamba2->layers = std::move(states);
  }
  CHORAL_TRY(const int64_t shared, config.get_int_or("shared_intermediate_size", 1024, kDimension));
  CHORAL_TRY(const int64_t experts, config.get_int_or("num_experts", 0, io::kNotNegative));
  if (experts > 0) {
    CHORAL_TRY(spec.moe, read_granite_mixture(config, spec));
    add_granite_shared_mlp(shared, *spec.moe);
  } else {
    spec.intermediate = shared;
    spec.mlp_block = "shared_mlp";
    spec.mlp_linears = true;
  }
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
