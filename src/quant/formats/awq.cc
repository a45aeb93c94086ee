// AutoAWQ: 4 bits, asymmetric, in groups of k, in the layout of its gemm kernel.
#include "quant/formats/formats.h"
#include "quant/scheme_linear.h"

namespace choral::quant {
namespace {

class Awq : public QuantConfig {
 public:
  Awq(SchemePtr scheme, std::vector<std::string> skipped) : scheme_(std::move(scheme)), skipped_(std::move(skipped)) {}

  Result<LayerScheme> scheme_for(LayerKind kind, std::string_view layer) const override {
    if (!is_linear(kind)) return LayerScheme{float_scheme(), "as stored"};
    for (const auto& part : skipped_) {
      if (layer.find(part) != layer.npos) return LayerScheme{float_scheme(), fmt::format("'{}' in modules_to_not_convert", part)};
    }
    return LayerScheme{scheme_, "quantised by awq"};
  }
  SchemePtr packed_scheme() const override { return scheme_; }

 private:
  SchemePtr scheme_;
  std::vector<std::string> skipped_;  // parts of names
};

}  // namespace

Result<std::unique_ptr<QuantConfig>> read_awq(const io::ConfigMap& config) {
  CHORAL_TRY(const int64_t bits, config.get_int("bits"));
  CHORAL_TRY(const int64_t group_size, config.get_int("group_size"));
  CHORAL_TRY(const bool zero_point, config.get_bool_or("zero_point", true));
  CHORAL_TRY(const auto version, config.get_string_or("version", "gemm"));
  CHORAL_TRY(auto skipped, config.get_strings_or_empty("modules_to_not_convert"));
  if (bits != 4) return unread_format(config.path_of("bits"), fmt::format("{}", bits), "4");
  if (!zero_point) return unread_format(config.path_of("zero_point"), "false", "true");
  if (version != "gemm" && version != "GEMM") return unread_format(config.path_of("version"), version, "gemm");
  CHORAL_TRY(const int64_t group, checked_group_size(config, group_size));
  const IntegerFormat format{.bits = 4, .group_size = group, .symmetric = false};
  return std::make_unique<Awq>(weight_only_scheme(awq_columns(format)), std::move(skipped));
}

}  // namespace choral::quant
