#include "engine/pooling.h"

#include <fmt/ranges.h>

#include <cmath>
#include <optional>

#include "io/config_value.h"

namespace choral::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKnown = "embeddings are made of the last token, the first, the mean or the maxima";

// What sentence-transformers calls them, in the words of its first files and of those since version 5.
struct Mode {
  std::string_view key, name;
  Pooling pooling;
};
constexpr Mode kModes[] = {{"pooling_mode_cls_token", "cls", Pooling::kFirst},
                           {"pooling_mode_max_tokens", "max", Pooling::kMax},
                           {"pooling_mode_mean_tokens", "mean", Pooling::kMean},
                           {"pooling_mode_lasttoken", "lasttoken", Pooling::kLast}};

// pooling_type of GGUF.
Result<Pooling> pooling_of_gguf(const io::ConfigMap& config) {
  constexpr int64_t kGgufMean = 1, kGgufFirst = 2, kGgufLast = 3;
  CHORAL_TRY(const int64_t type, config.get_int_or("pooling_type", kGgufLast));
  switch (type) {
    case kGgufMean: return Pooling::kMean;
    case kGgufFirst: return Pooling::kFirst;
    case kGgufLast: return Pooling::kLast;
    default:
      return unsupported("{} is {}; embeddings are made of the mean (1), of the first token (2) or of the last (3)",
                         config.path_of("pooling_type"), type);
  }
}

// A word, or a list of those whose vectors follow each other.
Result<Pooling> named_pooling(const io::ConfigMap& config) {
  const auto* value = config.find("pooling_mode");
  std::vector<std::string> names;
  if (value->if_string() != nullptr) {
    names = {*value->if_string()};
  } else {
    CHORAL_TRY(names, config.get_strings("pooling_mode"));
  }
  for (const auto& mode : kModes) {
    if (names.size() == 1 && names.front() == mode.name) return mode.pooling;
  }
  return unsupported("{} is {}; {}", config.path_of("pooling_mode"), value->to_json(), kKnown);
}

Result<Pooling> pooling_of_folder(const fs::path& model) {
  std::error_code error;
  const auto path = model / "1_Pooling" / "config.json";
  if (!fs::exists(path, error)) return Pooling::kLast;
  CHORAL_TRY(const auto config, io::ConfigMap::read_json_file(path));
  if (config.contains("pooling_mode")) return named_pooling(config);  // before all others, as there
  std::vector<std::string_view> asked;
  std::optional<Pooling> found;
  for (const auto& member : config.members()) {
    if (!member.key.starts_with("pooling_mode_")) continue;
    CHORAL_TRY(const bool set, config.get_bool_or(member.key, false));
    if (!set) continue;
    asked.push_back(member.key);
    for (const auto& mode : kModes) {
      if (member.key == mode.key) found = mode.pooling;
    }
  }
  if (asked.empty()) return Pooling::kMean;  // as sentence-transformers reads it
  if (asked.size() == 1 && found) return *found;
  return unsupported("{} asks for {}; {}", path.string(), fmt::join(asked, " and "), kKnown);
}

// Files of sentence-transformers, or the same of GGUF, stand beside models for embeddings alone.
bool is_for_embeddings(const fs::path& model, const io::ConfigMap& config) {
  std::error_code error;
  if (!fs::is_directory(model, error)) return config.contains("pooling_type");
  return fs::exists(model / "modules.json", error) || fs::exists(model / "1_Pooling" / "config.json", error);
}

}  // namespace

std::string_view pooling_name(Pooling pooling) {
  switch (pooling) {
    case Pooling::kLast: return "the last token's hidden state";
    case Pooling::kFirst: return "the first token's hidden state";
    case Pooling::kMean: return "the mean of all tokens";
    case Pooling::kMax: return "the maxima over all tokens";
    case Pooling::kNone:
    case Pooling::kClasses: break;
  }
  return "none";
}

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
