// MXFP4 as gpt-oss has it, quant_method "mxfp4": the matrices of experts, taken apart by io/stacked_experts.h into what
// compressed-tensors stores too; everything else is float, whatever modules_to_not_convert leaves out.
#include "quant/formats/formats.h"
#include "quant/formats/skipped_modules.h"

namespace choral::quant {
namespace {

class Mxfp4Config : public QuantConfig {
 public:
  Status read(const io::ConfigMap& config) { return skipped_.read(config, "modules_to_not_convert"); }

  Result<LayerScheme> scheme_for(LayerKind kind, std::string_view layer) const override {
    constexpr std::string_view kExperts = ".experts";
    const size_t at = layer.rfind(fmt::format("{}.", kExperts));
    if (!is_linear(kind) || at == std::string_view::npos) return LayerScheme{float_scheme(), "as stored"};
    CHORAL_TRY(const bool skipped, skipped_.match(layer.substr(0, at + kExperts.size())));
    return skipped ? LayerScheme{float_scheme(), "a layer not to convert"} : LayerScheme{scheme_, "quantised by mxfp4"};
  }

 private:
  const SchemePtr scheme_ = weight_only_scheme(e2m1_rows());
  SkippedModules skipped_;
};

}  // namespace

Result<std::unique_ptr<QuantConfig>> read_mxfp4(const io::ConfigMap& quantization_config) {
  auto made = std::make_unique<Mxfp4Config>();
  CHORAL_RETURN_IF_ERROR(made->read(quantization_config));
  return std::unique_ptr<QuantConfig>(std::move(made));
}

}  // namespace choral::quant
