#include "quant/compressed_tensors.h"

#include <fmt/ranges.h>

#include <map>

#include "io/module_pattern.h"
#include "quant/formats/fp8.h"
#include "quant/scheme_linear.h"

namespace choral::quant {
namespace {

constexpr std::string_view kClass = "Linear";  // the one class of layers that a target may name

// A list of targets or of ignored layers: "Linear", a layer's whole name, or "re:" and a regular expression.
class Targets {
 public:
  static Result<Targets> read(const io::ConfigMap& map, std::string_view key) {
    CHORAL_TRY(const auto entries, map.get_strings_or_empty(key));
    Targets targets;
    for (const std::string& entry : entries) {
      if (entry.starts_with("re:")) {
        CHORAL_TRY(auto pattern, io::ModulePattern::compile(std::string_view(entry).substr(3), io::ModulePattern::Mode::kMatch)
                                     .while_(map.path_of(key)));
        targets.patterns_.push_back(std::move(pattern));
      } else if (entry == kClass) {
        targets.all_linear_ = true;
      } else {
        targets.names_.push_back(entry);
      }
    }
    return targets;
  }

  // Every layer that is asked for is linear.
  Result<bool> match(std::string_view layer) const {
    if (all_linear_) return true;
    for (const auto& name : names_) {
      if (name == layer) return true;
    }
    for (const auto& pattern : patterns_) {
      CHORAL_TRY(const bool matches, pattern.matches(layer));
      if (matches) return true;
    }
    return false;
  }

 private:
  bool all_linear_ = false;
  std::vector<std::string> names_;
  std::vector<io::ModulePattern> patterns_;
};

// How one tensor was quantised: QuantizationArgs.
struct Args {
  std::string type, strategy;
  int64_t bits = 0;
  bool symmetric = true, dynamic = false;

  static Result<Args> read(const io::ConfigMap& map) {
    Args args;
    CHORAL_TRY(args.type, map.get_string_or("type", "int"));
    CHORAL_TRY(args.strategy, map.get_string_or("strategy", "tensor"));
    CHORAL_TRY(args.bits, map.get_int_or("num_bits", 8, {1, 64}));
    CHORAL_TRY(args.symmetric, map.get_bool_or("symmetric", true));
    CHORAL_TRY(args.dynamic, map.get_bool_or("dynamic", false));
    return args;
  }
  bool operator==(const Args&) const = default;

  std::string text() const {
    return fmt::format("{}{}, a scale for each {}{}{}", type, bits, strategy, symmetric ? "" : ", asymmetric",
                       dynamic ? ", dynamic" : "");
  }
};

Result<SchemePtr> scheme_of(const io::ConfigMap& group, std::map<std::string, SchemePtr>& known) {
  CHORAL_TRY(auto fp8, fp8_group_scheme(group, known));
  if (fp8 != nullptr) return fp8;
  CHORAL_TRY(const auto weights_map, group.get_map("weights"));
  CHORAL_TRY(const auto activations_map, group.get_map_or_empty("input_activations"));
  CHORAL_TRY(const auto weights, Args::read(weights_map));
  CHORAL_TRY(const auto activations, Args::read(activations_map));
  const Args int8_channels{.type = "int", .strategy = "channel", .bits = 8};
  const Args int8_tokens{.type = "int", .strategy = "token", .bits = 8, .dynamic = true};
  const Args int8_tensor{.type = "int", .strategy = "tensor", .bits = 8};
  if (weights == int8_channels && !activations_map.empty()) {
    if (activations == int8_tokens) return w8a8_dynamic_scheme();
    if (activations == int8_tensor) return w8a8_scheme();
  }
  return unsupported(
      "{}: weights of {} with activations of {} are not read; what is: weights of {} with activations of {} or {}. Use the float "
      "checkpoint, --quantization for one of {}, or a GGUF file",
      group.path_of("weights"), weights.text(), activations_map.empty() ? "float" : activations.text(), int8_channels.text(),
      int8_tokens.text(), int8_tensor.text(), fmt::join(in_flight_names(), ", "));
}

class CompressedTensors : public QuantConfig {
 public:
  static Result<std::unique_ptr<QuantConfig>> read(const io::ConfigMap& config) {
    CHORAL_TRY(const auto status, config.get_string_or("quantization_status", "compressed"));
    if (status != "compressed") {
      return unsupported("{} is '{}'; only checkpoints that were saved compressed are read",
                         config.path_of("quantization_status"), status);
    }
    auto made = std::make_unique<CompressedTensors>();
    CHORAL_TRY(made->ignore_, Targets::read(config, "ignore"));
    CHORAL_TRY(const auto groups, config.get_map("config_groups"));
    for (const auto& member : groups.members()) {
      CHORAL_TRY(const auto group, groups.get_map(member.key));
      CHORAL_TRY(auto targets, Targets::read(group, "targets"));
      CHORAL_TRY(auto scheme, scheme_of(group, made->known_));
      made->groups_.push_back({std::move(targets), std::move(scheme)});
    }
    if (made->groups_.empty()) return corrupt("{} has no group", config.path_of("config_groups"));
    return std::unique_ptr<QuantConfig>(std::move(made));
  }

  std::string_view name() const override { return "compressed-tensors"; }

  Result<SchemePtr> scheme_for(LayerKind kind, std::string_view layer) const override {
    if (kind == LayerKind::kEmbedding) return float_scheme();
    CHORAL_TRY(const bool ignored, ignore_.match(layer));
    if (ignored) return float_scheme();
    for (const auto& group : groups_) {
      CHORAL_TRY(const bool matches, group.targets.match(layer));
      if (matches) return group.scheme;
    }
    return float_scheme();
  }

 private:
  struct Group {
    Targets targets;
    SchemePtr scheme;
  };

  std::vector<Group> groups_;  // the first that a layer is in
  Targets ignore_;
  std::map<std::string, SchemePtr> known_;
};

}  // namespace

Result<std::unique_ptr<QuantConfig>> read_compressed_tensors(const io::ConfigMap& quantization_config) {
  return CompressedTensors::read(quantization_config);
}

}  // namespace choral::quant
