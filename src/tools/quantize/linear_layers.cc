#include "tools/quantize/linear_layers.h"

#include <algorithm>

#include "io/module_pattern.h"
#include "layers/linear.h"
#include "models/registry.h"
#include "platform/platform.h"
#include "quant/quant_config.h"

namespace choral::tools {
namespace {

// Writes down every layer that a model asks a method for.
class LayerRecorder : public quant::QuantConfig {
 public:
  Status add_ignored(const std::string& text) {
    CHORAL_TRY(auto pattern, io::ModulePattern::compile(text, io::ModulePattern::Mode::kFull).while_("--ignore"));
    ignore_.push_back({std::move(pattern), false});
    return {};
  }

  Result<quant::LayerScheme> scheme_for(quant::LayerKind kind, std::string_view layer) const override {
    CHORAL_TRY(const bool ignored, is_ignored(kind, layer));
    const bool quantised = kind == quant::LayerKind::kLinear && !ignored;
    return quant::LayerScheme{quantised ? quantised_ : quant::float_scheme(), ignored ? "--ignore" : "to be written"};
  }

  Result<std::unique_ptr<quant::LinearMethod>> get_quant_method(quant::LayerKind kind,
                                                                const quant::LinearShape& shape) const override {
    // What stays as it is, which readers must be told.
    const bool kept = kind == quant::LayerKind::kRouter || kind == quant::LayerKind::kAbsorbed;
    for (size_t i = 0; (kind == quant::LayerKind::kLinear || kept) && i < shape.out.size(); ++i) {
      CHORAL_TRY(const bool ignored, is_ignored(kind, shape.shard_names[i]));
      layers_.push_back({.name = shape.shard_names[i], .rows = shape.out[i], .k = shape.in, .ignored = ignored || kept});
    }
    return QuantConfig::get_quant_method(kind, shape);
  }

  void mark_row_parallel(std::string_view name) {
    const auto layer = std::ranges::find(layers_, name, &LinearLayer::name);
    if (layer != layers_.end()) layer->row_parallel = true;
  }

  Result<std::vector<LinearLayer>> layers() const {
    for (const Ignored& entry : ignore_) {
      if (!entry.used) {
        return invalid_argument("--ignore {} is the name of no linear layer; one is '{}'", entry.pattern.text(),
                                layers_.empty() ? "" : layers_.front().name);
      }
    }
    return layers_;
  }

 private:
  struct Ignored {
    io::ModulePattern pattern;
    mutable bool used;
  };

  Result<bool> is_ignored(quant::LayerKind kind, std::string_view layer) const {
    bool any = false;
    for (size_t i = 0; kind == quant::LayerKind::kLinear && i < ignore_.size(); ++i) {
      CHORAL_TRY(const bool matches, ignore_[i].pattern.matches(layer));
      ignore_[i].used |= matches;
      any |= matches;
    }
    return any;
  }

  const quant::SchemePtr quantised_ = quant::fp8_in_flight_scheme();  // any that is not the float one
  std::vector<Ignored> ignore_;
  mutable std::vector<LinearLayer> layers_;
};

}  // namespace

Result<std::vector<LinearLayer>> find_linear_layers(const io::ConfigMap& config, std::span<const std::string> ignore) {
  LayerRecorder recorder;
  for (const auto& text : ignore) CHORAL_RETURN_IF_ERROR(recorder.add_ignored(text));
  ThreadPool pool(1);
  CHORAL_TRY(const auto session, platform::cpu_platform().open(pool, {}));
  platform::LayerOverrides overrides;
  CHORAL_RETURN_IF_ERROR((overrides.replace<layers::RowParallelLinear, layers::Builder>(
      layers::RowParallelLinear::kLayerName, [&recorder](layers::Builder& builder, const layers::LinearSpec& spec) {
        auto layer = std::make_unique<layers::RowParallelLinear>(builder, spec);
        recorder.mark_row_parallel(spec.prefix);
        return layer;
      })));
  CHORAL_RETURN_IF_ERROR(models::make_model(config, {*session, recorder, {}, overrides, /*max_model_len=*/1}).status());
  return recorder.layers();
}

}  // namespace choral::tools
