#include "quant/quant_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "quant/compressed_tensors.h"
#include "quant/formats/fp8.h"
#include "quant/scheme_linear.h"

namespace choral::quant {
namespace {

// One line a scheme that a wish names. A table rather than self-registration: a static library drops object files that nobody
// names.
struct InFlight {
  std::string_view name;
  SchemePtr (*linear)();
};
constexpr std::array<InFlight, 2> kInFlight{{{"w8a8_dynamic", w8a8_in_flight_scheme}, {"fp8", fp8_in_flight_scheme}}};

// One scheme for all linear layers; embedding and head are as stored.
class OneScheme : public QuantConfig {
 public:
  OneScheme(std::string_view name, SchemePtr linear) : name_(name), linear_(std::move(linear)) {}
  std::string_view name() const override { return name_; }
  Result<SchemePtr> scheme_for(LayerKind kind, std::string_view) const override {
    return kind == LayerKind::kLinear ? linear_ : float_scheme();
  }

 private:
  std::string_view name_;
  SchemePtr linear_;
};

}  // namespace

Result<std::unique_ptr<LinearMethod>> QuantConfig::get_quant_method(LayerKind kind, const LinearShape& shape) const {
  SchemePtr scheme;
  for (const auto& member : shape.shard_names) {
    CHORAL_TRY(auto own, scheme_for(kind, member));
    if (scheme != nullptr && own != scheme) {
      return unsupported("{} and {} are computed as one matrix, but one is quantised and the other is not, or in another way",
                         shape.shard_names.front(), member);
    }
    scheme = std::move(own);
  }
  return make_scheme_linear_method(std::move(scheme));
}

std::vector<std::string> in_flight_names() {
  std::vector<std::string> names;
  for (const auto& scheme : kInFlight) names.emplace_back(scheme.name);
  return names;
}

Status check_quantization(std::string_view wish) {
  const auto names = in_flight_names();
  if (wish == "auto" || std::find(names.begin(), names.end(), wish) != names.end()) return {};
  return invalid_argument("--quantization {}: choose auto (the checkpoint as it is), {}", wish, fmt::join(names, ", "));
}

Result<std::unique_ptr<QuantConfig>> make_quant_config(const io::ConfigMap& config, std::string_view wish) {
  CHORAL_RETURN_IF_ERROR(check_quantization(wish));
  CHORAL_TRY(const auto stored, config.get_map_or_empty("quantization_config"));
  if (!stored.empty()) {
    CHORAL_TRY(const auto method, stored.get_string_or("quant_method", "of no name"));
    const auto where = config.path_of("quantization_config");
    if (wish != "auto") {
      return invalid_argument("--quantization {} is for float checkpoints; this one is quantised ({} is {})", wish, where,
                              method);
    }
    if (method == "compressed-tensors") return read_compressed_tensors(stored);
    if (method == "fp8") return read_fp8(stored);
    return unsupported(
        "{}: checkpoints quantised by {} are not read, those by compressed-tensors and fp8 are; use the float checkpoint, with "
        "--quantization {} if you like, or a GGUF file",
        where, method, fmt::join(in_flight_names(), " or "));
  }
  for (const auto& scheme : kInFlight) {
    if (scheme.name == wish) return std::make_unique<OneScheme>(scheme.name, scheme.linear());
  }
  return std::make_unique<OneScheme>("auto", float_scheme());
}

}  // namespace choral::quant
