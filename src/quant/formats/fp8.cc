#include "quant/formats/fp8.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "quant/formats/formats.h"
#include "quant/formats/skipped_modules.h"

namespace choral::quant {
namespace {

constexpr io::IntRange kBlockSides{1, 1 << 20};

Result<Fp8Blocks> read_blocks(const io::ConfigMap& config, std::string_view key) {
  CHORAL_TRY(const auto sides, config.get_ints(key, kBlockSides));
  if (sides.size() != 2 || sides[1] % 32 != 0) {
    return unread_format(config.path_of(key), fmt::format("[{}]", fmt::join(sides, ", ")),
                         "[rows, columns], columns a multiple of 32");
  }
  return Fp8Blocks{sides[0], sides[1]};
}

std::string activations_note(const std::string& where) {
  return fmt::format("{}: activations stay float, fp8 weights are multiplied with them as they are", where);
}

class Fp8Config : public QuantConfig {
 public:
  static Result<std::unique_ptr<QuantConfig>> read(const io::ConfigMap& config) {
    auto made = std::make_unique<Fp8Config>();
    CHORAL_TRY(const auto number, config.get_string_or("fmt", "e4m3"));
    if (number != "e4m3") return unread_format(config.path_of("fmt"), number, "e4m3");
    CHORAL_TRY(const auto scales, config.get_string_or("scale_fmt", "float"));
    if (scales != "float" && scales != "ue8m0") return unread_format(config.path_of("scale_fmt"), scales, "float, ue8m0");
    CHORAL_TRY(const auto activations, config.get_string_or("activation_scheme", "dynamic"));
    if (activations != "dynamic" && activations != "static") {
      return unread_format(config.path_of("activation_scheme"), activations, "dynamic, static");
    }
    made->note_ = activations_note(config.path_of("activation_scheme"));
    CHORAL_TRY(const auto converted, config.get_strings_or_empty("modules_to_convert"));
    if (!converted.empty()) {
      return unread_format(config.path_of("modules_to_convert"), fmt::format("a list with {}", converted.front()),
                           "linear layers, and none besides");
    }
    // transformers takes it for [128, 128] where it is absent, vLLM for scales of channels or tensors.
    Fp8Blocks blocks{128, 128, /*said=*/false};
    if (config.contains("weight_block_size")) {
      CHORAL_TRY(blocks, read_blocks(config, "weight_block_size"));
    }
    made->scheme_ = fp8_scheme(blocks);
    for (const auto* key : {"modules_to_not_convert", "ignored_layers"}) CHORAL_RETURN_IF_ERROR(made->skipped_.read(config, key));
    return std::unique_ptr<QuantConfig>(std::move(made));
  }

  std::vector<std::string> notes() const override { return {note_}; }

  Result<LayerScheme> scheme_for(LayerKind kind, std::string_view layer) const override {
    if (!is_linear(kind)) return LayerScheme{float_scheme(), "as stored"};
    CHORAL_TRY(const bool skipped, skipped_.match(layer));
    return skipped ? LayerScheme{float_scheme(), "a layer not to convert"} : LayerScheme{scheme_, "quantised by fp8"};
  }

 private:
  SchemePtr scheme_;
  SkippedModules skipped_;
  std::string note_;
};

// How one tensor of a group was quantised.
struct Float8Args {
  std::string strategy;
  bool dynamic;

  // `strategies`: those that are read.
  static Result<Float8Args> read(const io::ConfigMap& group, std::string_view key, std::span<const std::string_view> strategies) {
    CHORAL_TRY(const auto map, group.get_map(key));
    CHORAL_TRY(const auto type, map.get_string_or("type", "int"));
    if (type != "float") return unread_format(map.path_of("type"), type, "float, beside weights of float");
    CHORAL_TRY(const auto bits, map.get_int_or("num_bits", 8));
    if (bits != 8) return unread_format(map.path_of("num_bits"), fmt::format("{}", bits), "8 bits of float");
    CHORAL_TRY(const bool symmetric, map.get_bool_or("symmetric", true));
    if (!symmetric) return unread_format(map.path_of("symmetric"), "false", "true for floats");
    CHORAL_TRY(const bool dynamic, map.get_bool_or("dynamic", false));
    CHORAL_TRY(auto strategy, map.get_string_or("strategy", "tensor"));
    if (std::find(strategies.begin(), strategies.end(), strategy) == strategies.end()) {
      return unread_format(map.path_of("strategy"), strategy, fmt::format("{} for floats", fmt::join(strategies, ", ")));
    }
    return Float8Args{std::move(strategy), dynamic};
  }
};

}  // namespace

Result<std::unique_ptr<QuantConfig>> read_fp8(const io::ConfigMap& quantization_config) {
  return Fp8Config::read(quantization_config);
}

Result<SchemePtr> fp8_group_scheme(const io::ConfigMap& group, std::map<std::string, SchemePtr>& known) {
  CHORAL_TRY(const auto map, group.get_map("weights"));
  static constexpr std::string_view kOfWeights[] = {"tensor", "channel", "block", "group"};
  static constexpr std::string_view kOfActivations[] = {"tensor", "token", "group"};
  CHORAL_TRY(const auto weights, Float8Args::read(group, "weights", kOfWeights));
  if (weights.dynamic) return unread_format(map.path_of("dynamic"), "true", "false for weights");
  if (group.contains("input_activations")) {
    CHORAL_RETURN_IF_ERROR(Float8Args::read(group, "input_activations", kOfActivations).status());
  }
  Fp8Blocks blocks;
  if (weights.strategy == "block") {
    CHORAL_TRY(blocks, read_blocks(map, "block_structure"));
  }
  if (weights.strategy == "group") {
    CHORAL_TRY(const auto columns, map.get_int("group_size", kBlockSides));
    CHORAL_TRY(blocks.cols, checked_group_size(map, columns));
    blocks.rows = 1;
  }
  SchemePtr& scheme = known[fmt::format("fp8 in blocks of {} x {}", blocks.rows, blocks.cols)];
  if (scheme == nullptr) scheme = fp8_scheme(blocks);
  return scheme;
}

}  // namespace choral::quant
