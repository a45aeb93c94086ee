#include "tools/quantize/float_model.h"

#include <algorithm>

#include "io/hub_cache.h"
#include "io/model_config.h"

namespace choral::tools {
namespace {

// A model's folder, which holds a float checkpoint.
Result<io::ModelLocation> locate_float_model(const QuantizeOptions& options) {
  CHORAL_TRY(const std::filesystem::path path, io::resolve_model(options.model));
  CHORAL_TRY(auto location, io::locate_model(path));
  if (location.kind == io::ModelLocation::Kind::kGguf) {
    return unsupported(
        "{} is a GGUF file, which is not quantised again here; name the float checkpoint it was made of, a folder with "
        "config.json and *.safetensors",
        location.file.string());
  }
  return location;
}

Status check_not_quantised(const io::ConfigMap& config) {
  CHORAL_TRY(const auto stored, config.get_map_or_empty("quantization_config"));
  if (stored.empty()) return {};
  CHORAL_TRY(const auto method, stored.get_string_or("quant_method", "of no name"));
  return invalid_argument("{}: the checkpoint is quantised already, by {}; quantise the float one it was made of",
                          config.path_of("quantization_config"), method);
}

}  // namespace

bool is_float(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

Result<FloatModel> FloatModel::open(const QuantizeOptions& options, const quant::WrittenScheme& scheme) {
  FloatModel model;
  CHORAL_TRY(model.location, locate_float_model(options));
  CHORAL_TRY(model.config, io::load_model_config(model.location));
  CHORAL_RETURN_IF_ERROR(check_not_quantised(model.config));
  CHORAL_TRY(model.checkpoint, io::Checkpoint::open(model.location));
  CHORAL_TRY(model.layers, find_linear_layers(model.config, options.ignore));
  std::ranges::sort(model.layers, {}, &LinearLayer::name);
  if (model.ignored_layers() == std::ssize(model.layers)) return invalid_argument("--ignore leaves no layer to quantise");
  for (const LinearLayer& layer : model.layers) {
    CHORAL_TRY(const auto weight, model.checkpoint->find(layer.name + std::string(kWeightSuffix)));
    if (weight.view.shape != Shape{layer.rows, layer.k}) {
      return corrupt("tensor {}.weight is {}, but the layer is [{}, {}]", layer.name, weight.view.shape.to_string(), layer.rows,
                     layer.k);
    }
    if (!is_float(weight.view.dtype)) {
      return unsupported("tensor {}.weight is stored as {}; weights of float32, float16 and bfloat16 are quantised", layer.name,
                         dtype_name(weight.view.dtype));
    }
    if (!layer.ignored) CHORAL_RETURN_IF_ERROR(quant::check_written(scheme, layer.name, layer.rows, layer.k));
  }
  return model;
}

const LinearLayer* FloatModel::quantised_layer(std::string_view tensor) const {
  if (!tensor.ends_with(kWeightSuffix)) return nullptr;
  const auto layer = tensor.substr(0, tensor.size() - kWeightSuffix.size());
  const auto at = std::ranges::lower_bound(layers, layer, {}, [](const LinearLayer& l) { return std::string_view(l.name); });
  return at != layers.end() && at->name == layer && !at->ignored ? &*at : nullptr;
}

int64_t FloatModel::ignored_layers() const { return std::ranges::count_if(layers, &LinearLayer::ignored); }

}  // namespace choral::tools
