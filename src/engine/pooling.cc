#include "engine/pooling.h"

#include <cmath>

#include "base/printable.h"
#include "io/mapped_file.h"

namespace choral::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPooledBytes = 1 << 20;

// The stages of a sentence-transformers model: it, the pooling, and lengths of one; a dense layer would need weights.
Status check_stages(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  CHORAL_TRY(const std::string list, io::read_whole_file(path, kMostPooledBytes));
  CHORAL_TRY(const auto whole, io::ConfigMap::parse_json(fmt::format("{{\"modules\": {}}}", list), path.string()));
  CHORAL_TRY(const auto stages, whole.get_maps("modules"));
  for (const auto& stage : stages) {
    CHORAL_TRY(const auto type, stage.get_string("type"));
    const auto is = [&type](std::string_view name) { return type.ends_with(name); };
    if (is(".Transformer") || is(".Pooling") || is(".Normalize")) continue;
    return unsupported("{} is {}: embeddings are made by the model and its pooling, without further layers",
                       stage.path_of("type"), quoted(type, 100));
  }
  return {};
}

// pooling_type of GGUF.
Result<Pooling> pooling_of_gguf(const io::ConfigMap& config) {
  constexpr int64_t kGgufMean = 1, kGgufLast = 3;
  CHORAL_TRY(const int64_t type, config.get_int_or("pooling_type", kGgufLast));
  if (type == kGgufMean || type == kGgufLast) return type == kGgufMean ? Pooling::kMean : Pooling::kLast;
  return unsupported("{} is {}; embeddings are made of the last token (3) or of the mean (1)", config.path_of("pooling_type"),
                     type);
}

}  // namespace

Result<Pooling> read_pooling(const fs::path& model, const io::ConfigMap& model_config) {
  std::error_code error;
  if (!fs::is_directory(model, error)) return pooling_of_gguf(model_config);
  CHORAL_RETURN_IF_ERROR(check_stages(model / "modules.json"));
  const auto path = model / "1_Pooling" / "config.json";
  if (!fs::exists(path, error)) return Pooling::kLast;
  CHORAL_TRY(const auto config, io::ConfigMap::read_json_file(path));
  CHORAL_TRY(const bool last, config.get_bool_or("pooling_mode_lasttoken", false));
  CHORAL_TRY(const bool mean, config.get_bool_or("pooling_mode_mean_tokens", !last));
  for (const auto& member : config.members()) {
    constexpr std::string_view kMode = "pooling_mode_";
    if (!member.key.starts_with(kMode) || member.key == "pooling_mode_lasttoken" || member.key == "pooling_mode_mean_tokens") {
      continue;
    }
    CHORAL_TRY(const bool set, config.get_bool_or(member.key, false));
    if (set)
      return unsupported("{} asks for {}; embeddings are made of the last token or of the mean", path.string(), member.key);
  }
  if (last == mean) {
    return unsupported("{} asks for {} pooling; embeddings are made of the last token or of the mean", path.string(),
                       last ? "last and mean" : "no");
  }
  return last ? Pooling::kLast : Pooling::kMean;
}

Result<std::vector<float>> normalized(std::span<const float> vector) {
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * static_cast<double>(value);
  const double length = std::sqrt(squares);
  if (!(length > 0 && std::isfinite(length)))
    return internal_error("the text's hidden state has no direction (length {})", length);
  std::vector<float> out(vector.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(static_cast<double>(vector[i]) / length);
  return out;
}

}  // namespace choral::engine
