#include "engine/pooling.h"

#include <cmath>

namespace choral::engine {
namespace {

namespace fs = std::filesystem;

// pooling_type of GGUF.
Result<Pooling> pooling_of_gguf(const io::ConfigMap& config) {
  constexpr int64_t kGgufMean = 1, kGgufLast = 3;
  CHORAL_TRY(const int64_t type, config.get_int_or("pooling_type", kGgufLast));
  if (type == kGgufMean || type == kGgufLast) return type == kGgufMean ? Pooling::kMean : Pooling::kLast;
  return unsupported("{} is {}; embeddings are made of the last token (3) or of the mean (1)", config.path_of("pooling_type"),
                     type);
}

Result<Pooling> pooling_of_folder(const fs::path& model) {
  std::error_code error;
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

// Files of sentence-transformers, or the same of GGUF, stand beside models for embeddings alone.
bool is_for_embeddings(const fs::path& model, const io::ConfigMap& config) {
  std::error_code error;
  if (!fs::is_directory(model, error)) return config.contains("pooling_type");
  return fs::exists(model / "modules.json", error) || fs::exists(model / "1_Pooling" / "config.json", error);
}

}  // namespace

Result<PooledForm> read_pooling(const fs::path& model, const io::ConfigMap& config) {
  std::error_code error;
  PooledForm form;
  CHORAL_TRY(form.pooling, fs::is_directory(model, error) ? pooling_of_folder(model) : pooling_of_gguf(config));
  if (config.contains("matryoshka_dimensions")) {
    CHORAL_TRY(form.dimensions, config.get_ints("matryoshka_dimensions"));
  }
  form.is_purpose = is_for_embeddings(model, config);
  CHORAL_TRY(form.may_be_cut, config.get_bool_or("is_matryoshka", !form.dimensions.empty() || form.is_purpose));
  return form;
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
