#include "tools/quantize/description.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace choral::tools {
namespace {

using Json = nlohmann::ordered_json;
using quant::WrittenScheme;

Json weights_json(const WrittenScheme& scheme, int64_t group_size) {
  Json weights{{"num_bits", scheme.bits},
               {"type", scheme.codes == DType::kI8 ? "int" : "float"},
               {"symmetric", true},
               {"strategy", group_size == 0 ? "channel" : "group"},
               {"dynamic", false}};
  if (group_size != 0) weights["group_size"] = group_size;
  return weights;
}

Json group_json(const WrittenScheme& scheme, Json targets, int64_t group_size) {
  Json group{{"targets", std::move(targets)}, {"weights", weights_json(scheme, group_size)}};
  group["input_activations"] = nullptr;
  if (scheme.input != quant::WrittenInput::kFloat) {
    const bool fixed = scheme.input_is_fixed();
    group["input_activations"] = {
        {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", fixed ? "tensor" : "token"}, {"dynamic", !fixed}};
  }
  group["output_activations"] = nullptr;
  group["format"] = scheme.label;
  return group;
}

std::string group_text(int64_t size) { return size == 0 ? "a scale for each channel" : fmt::format("groups of {}", size); }

}  // namespace

Result<std::string> with_quantization_config(const std::string& config_json, const WrittenScheme& scheme,
                                             std::span<const LinearLayer> layers) {
  std::map<int64_t, std::vector<std::string>> by_group;
  Json ignore{"lm_head"};
  for (const LinearLayer& layer : layers) {
    if (layer.ignored) {
      ignore.push_back(layer.name);
    } else {
      by_group[scheme.group_size(layer.k)].push_back(layer.name);
    }
  }
  const auto most = std::max_element(by_group.begin(), by_group.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  // Who reads this takes the first group that a layer is in: names stand before the class of all.
  Json groups = Json::object();
  for (auto it = by_group.begin(); it != by_group.end(); ++it) {
    if (it != most) groups[fmt::format("group_{}", groups.size())] = group_json(scheme, it->second, it->first);
  }
  groups[fmt::format("group_{}", groups.size())] = group_json(scheme, Json{"Linear"}, most->first);

  Json config = Json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return corrupt("config.json is no JSON object");
  config["quantization_config"] = {{"quant_method", scheme.format},
                                   {"format", scheme.label},
                                   {"quantization_status", "compressed"},
                                   {"ignore", std::move(ignore)},
                                   {"config_groups", std::move(groups)}};
  return config.dump(2) + "\n";
}

Result<std::string> modelslim_description(const WrittenScheme& scheme, std::span<const LinearLayer> layers,
                                          const std::map<std::string, std::string_view>& types) {
  const LinearLayer* first = nullptr;
  for (const LinearLayer& layer : layers) {
    if (layer.ignored) continue;
    if (first == nullptr) first = &layer;
    const int64_t size = scheme.group_size(layer.k), wanted = scheme.group_size(first->k);
    if (size != wanted) {
      return unsupported(
          "--format {}: it has one size of groups for all layers, but {} (k {}) needs {} and {} (k {}) needs {}; use --format "
          "compressed-tensors",
          scheme.format, first->name, first->k, group_text(wanted), layer.name, layer.k, group_text(size));
    }
  }
  Json all{{"version", "1.0.0"}, {"model_quant_type", scheme.label}, {"group_size", scheme.group_size(first->k)}};
  for (const auto& [tensor, type] : types) all[tensor] = type;
  return all.dump(2) + "\n";
}

}  // namespace choral::tools
