#include "engine/pooling.h"

#include <cmath>

#include "io/config_map.h"

namespace choral::engine {

Result<Pooling> read_pooling(const std::filesystem::path& model) {
  const auto path = model / "1_Pooling" / "config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Pooling::kLast;
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
