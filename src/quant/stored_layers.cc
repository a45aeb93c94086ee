#include "quant/stored_layers.h"

namespace choral::quant {
namespace {

class StoredLayers : public QuantConfig {
 public:
  StoredLayers(std::unique_ptr<QuantConfig> described, HasTensor has_tensor)
      : described_(std::move(described)), has_tensor_(std::move(has_tensor)) {}

  std::vector<std::string> notes() const override { return described_->notes(); }

  Result<LayerScheme> scheme_for(LayerKind kind, std::string_view layer) const override {
    CHORAL_TRY(auto chosen, described_->scheme_for(kind, layer));
    const bool is_float = chosen.scheme == float_scheme();
    if (has_tensor_(fmt::format("{}.qweight", layer))) {
      if (is_float) return LayerScheme{described_->packed_scheme(), "quantised in the file"};
    } else if (!is_float && has_tensor_(fmt::format("{}.weight", layer))) {
      return LayerScheme{float_scheme(), "float in the file"};
    }
    return chosen;
  }

 private:
  std::unique_ptr<QuantConfig> described_;
  HasTensor has_tensor_;
};

}  // namespace

std::unique_ptr<QuantConfig> with_stored_layers(std::unique_ptr<QuantConfig> described, HasTensor has_tensor) {
  if (has_tensor == nullptr || described->packed_scheme() == nullptr) return described;
  return std::make_unique<StoredLayers>(std::move(described), std::move(has_tensor));
}

}  // namespace choral::quant
