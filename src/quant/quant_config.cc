#include "quant/quant_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "quant/format_names.h"
#include "quant/formats/formats.h"
#include "quant/platform_schemes.h"
#include "quant/scheme_linear.h"
#include "quant/stored_layers.h"

namespace choral::quant {
namespace {

constexpr std::string_view kAuto = "auto";

// One line a scheme that a wish names. A table rather than self-registration: a static library drops object files that nobody
// names.
struct InFlight {
  std::string_view name;
  SchemePtr (*linear)();
};
constexpr std::array kInFlight{
    InFlight{"w8a8_dynamic", [] { return dynamic_scheme(rounded_floats(8)); }},
    InFlight{"w8a16", [] { return weight_only_scheme(rounded_floats(8)); }},
    InFlight{"w4a16", [] { return weight_only_scheme(rounded_floats(4)); }},
    InFlight{"w4a8_dynamic", [] { return dynamic_scheme(rounded_floats(4)); }},
    InFlight{"fp8", fp8_in_flight_scheme},
};

// One line a quant_method of config.json.
struct Format {
  std::string_view name;
  Result<std::unique_ptr<QuantConfig>> (*read)(const io::ConfigMap&);
};
constexpr std::array kFormats{
    Format{"compressed-tensors", read_compressed_tensors},
    Format{"modelslim",
           [](const io::ConfigMap& stored) {
             return read_modelslim(io::ConfigMap(stored.object(), "quant_model_description.json"));
           }},
    Format{"awq", read_awq},
    Format{"gptq", read_gptq},
    Format{"fp8", read_fp8},
    Format{"mxfp4", read_mxfp4},
};

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

// One scheme for all linear layers; embedding, head, the routers of experts and what is multiplied as floats anyway are as
// stored.
class OneScheme : public QuantConfig {
 public:
  OneScheme(std::string_view name, SchemePtr linear) : name_(name), linear_(std::move(linear)) {}
  Result<LayerScheme> scheme_for(LayerKind kind, std::string_view) const override {
    if (name_ == kAuto) return LayerScheme{linear_, "as stored"};
    const bool meant = kind == LayerKind::kLinear;
    return LayerScheme{meant ? linear_ : float_scheme(),
                       fmt::format("--quantization {}{}", name_, meant ? "" : " is for linear layers")};
  }

 private:
  std::string name_;
  SchemePtr linear_;
};

Result<std::unique_ptr<QuantConfig>> make_usual(const io::ConfigMap& config, std::string_view wish,
                                                const platform::SchemeOverrides& overrides) {
  const auto* own = overrides.find<Scheme>(wish, layer_kind_name(LayerKind::kLinear));
  if (own == nullptr) CHORAL_RETURN_IF_ERROR(check_quantization(wish));
  CHORAL_TRY(const auto stored, config.get_map_or_empty("quantization_config"));
  if (!stored.empty()) {
    CHORAL_TRY(const auto method, stored.get_string_or("quant_method", "of no name"));
    const auto where = config.path_of("quantization_config");
    if (wish != kAuto) {
      return invalid_argument("--quantization {} is for float checkpoints; this one is quantised ({} is {})", wish, where,
                              method);
    }
    for (const Format& format : kFormats) {
      if (format.name == method) return format.read(stored);
    }
    return unsupported(
        "{}: checkpoints quantised by {} are not read; those by {} are. Use the float checkpoint, with --quantization {} if you "
        "like, or a GGUF file",
        where, method, fmt::join(checkpoint_format_names(), ", "), fmt::join(in_flight_names(), " or "));
  }
  if (own != nullptr) {
    auto scheme = (*own)(float_scheme());
    if (scheme == nullptr) return internal_error("the platform made no scheme for {}", wish);
    return std::make_unique<OneScheme>(wish, std::move(scheme));
  }
  for (const auto& scheme : kInFlight) {
    if (scheme.name == wish) return std::make_unique<OneScheme>(scheme.name, scheme.linear());
  }
  return std::make_unique<OneScheme>(kAuto, float_scheme());
}

constexpr std::array<std::string_view, 5> kKindNames{"linear", "embedding", "lm_head", "router", "absorbed"};  // by LayerKind

}  // namespace

std::string_view layer_kind_name(LayerKind kind) { return kKindNames[static_cast<size_t>(kind)]; }
std::vector<std::string_view> layer_kind_names() { return {kKindNames.begin(), kKindNames.end()}; }

Result<std::unique_ptr<LinearMethod>> QuantConfig::get_quant_method(LayerKind kind, const LinearShape& shape) const {
  LayerScheme chosen;
  for (const auto& member : shape.shard_names) {
    CHORAL_TRY(auto own, scheme_for(kind, member));
    if (chosen.scheme != nullptr && own.scheme != chosen.scheme) {
      return unsupported("{} and {} are computed as one matrix, but one is quantised and the other is not, or in another way",
                         shape.shard_names.front(), member);
    }
    chosen = std::move(own);
  }
  return make_scheme_linear_method(std::move(chosen));
}

std::vector<std::string> in_flight_names() { return names_of(kInFlight); }
std::vector<std::string> checkpoint_format_names() { return names_of(kFormats); }

Status check_quantization(std::string_view wish) {
  const auto names = in_flight_names();
  if (wish == kAuto || std::find(names.begin(), names.end(), wish) != names.end()) return {};
  return invalid_argument("--quantization {}: choose auto (the checkpoint as it is), {}", wish, fmt::join(names, ", "));
}

Result<std::unique_ptr<QuantConfig>> make_quant_config(const io::ConfigMap& config, std::string_view wish,
                                                       const platform::SchemeOverrides& overrides, HasTensor has_tensor) {
  CHORAL_TRY(auto described, make_usual(config, wish, overrides));
  return with_platform_schemes(with_stored_layers(std::move(described), std::move(has_tensor)), overrides);
}

}  // namespace choral::quant
