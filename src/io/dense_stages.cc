#include "io/dense_stages.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "io/config_map.h"
#include "io/mapped_file.h"

namespace choral::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStages = "embedding_layers.";
constexpr size_t kMostListBytes = 1 << 20;
constexpr size_t kMostStages = 8;
constexpr IntRange kFeatures{1, 1 << 20};

// A name within the model's folder, and no way out of it.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' && name.find_first_of("/\\") == std::string_view::npos;
}

Result<DenseStage> read_stage(const fs::path& folder) {
  CHORAL_TRY(const auto config, ConfigMap::read_json_file(folder / "config.json"));
  DenseStage stage{.weights = folder / "model.safetensors"};
  CHORAL_TRY(stage.in, config.get_int("in_features", kFeatures));
  CHORAL_TRY(stage.out, config.get_int("out_features", kFeatures));
  CHORAL_TRY(stage.bias, config.get_bool_or("bias", true));
  CHORAL_TRY(const auto activation, config.get_string_or("activation_function", "torch.nn.modules.activation.Tanh"));
  stage.is_tanh = activation.ends_with(".Tanh");
  if (stage.is_tanh || activation.ends_with(".Identity")) return stage;
  return unsupported("{} is {}; known are Tanh and Identity", config.path_of("activation_function"), quoted(activation, 100));
}

}  // namespace

Result<std::vector<DenseStage>> read_dense_stages(const fs::path& folder) {
  std::vector<DenseStage> stages;
  const fs::path path = folder / "modules.json";
  std::error_code error;
  if (!fs::exists(path, error)) return stages;
  CHORAL_TRY(const std::string list, read_whole_file(path, kMostListBytes));
  CHORAL_TRY(const auto whole, ConfigMap::parse_json(fmt::format("{{\"modules\": {}}}", list), path.string()));
  CHORAL_TRY(const auto modules, whole.get_maps("modules"));
  for (const auto& module : modules) {
    CHORAL_TRY(const auto type, module.get_string("type"));
    const auto is = [&type](std::string_view name) { return type.ends_with(name); };
    if (is(".Transformer") || is(".Pooling") || is(".Normalize")) continue;
    if (!is(".Dense")) {
      return unsupported("{} is {}: embeddings are made by the model, its pooling and dense layers, without further stages",
                         module.path_of("type"), quoted(type, 100));
    }
    CHORAL_TRY(const auto name, module.get_string("path"));
    if (!is_plain_name(name))
      return corrupt("{} is {}; it names a folder of the model's own", module.path_of("path"), quoted(name, 100));
    if (stages.size() == kMostStages) return too_large("{} has more than {} dense layers", path.string(), kMostStages);
    CHORAL_TRY(stages.emplace_back(), read_stage(folder / name));
  }
  return stages;
}

std::string dense_stage_name(size_t stage) { return fmt::format("{}{}", kStages, stage); }

bool is_of_dense_stage(std::string_view tensor) { return tensor.starts_with(kStages); }

}  // namespace choral::io
