// An immutable object of configuration with typed getters, whose errors name the file, the full key path, what stands there and
// what was wanted: "models/x/config.json: rope_scaling.factor is a string ("8"), a number is needed". Keys are literal (GGUF keys
// contain dots); `get_map` descends. A null counts as absent. Wrong types are errors in every getter, also in the `_or` ones: a
// default stands in for an absent key only. All these errors are kCorrupt: what is read here is a file's. Cheap to copy (shared),
// thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/config_value.h"

namespace choral::io {

struct JsonLimits {
  uint64_t max_bytes = 64 << 20;
  int max_depth = 64;
  uint64_t max_values = 4'000'000;
};

struct IntRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};
struct DoubleRange {
  double min = -std::numeric_limits<double>::max();
  double max = std::numeric_limits<double>::max();
};
inline constexpr IntRange kPositive{1, std::numeric_limits<int32_t>::max()};     // sizes and counts of a model
inline constexpr IntRange kNotNegative{0, std::numeric_limits<int32_t>::max()};  // ids

class ConfigMap {
 public:
  ConfigMap() = default;  // empty, without a source
  // `source` (a file's name) opens every message.
  ConfigMap(ConfigObject object, std::string source);

  // Strict JSON, an object at the top; a key twice, too deep or too large is refused. Integers beyond int64 become doubles.
  static Result<ConfigMap> parse_json(std::string_view text, std::string source, const JsonLimits& limits = {});
  static Result<ConfigMap> read_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});

  const ConfigValue* find(std::string_view key) const;  // null when absent or JSON null
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  bool empty() const { return object().members().empty(); }
  std::span<const ConfigMember> members() const { return object().members(); }
  const ConfigObject& object() const;

  Result<int64_t> get_int(std::string_view key, IntRange range = {}) const;
  Result<int64_t> get_int_or(std::string_view key, int64_t absent, IntRange range = {}) const;
  Result<double> get_double(std::string_view key, DoubleRange range = {}) const;  // finite
  Result<double> get_double_or(std::string_view key, double absent, DoubleRange range = {}) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<bool> get_bool_or(std::string_view key, bool absent) const;
  Result<std::string> get_string(std::string_view key) const;
  Result<std::string> get_string_or(std::string_view key, std::string_view absent) const;

  // Arrays; an absent key is an error in the first of each pair, an empty array in the `_or_empty` one.
  Result<std::vector<int64_t>> get_ints(std::string_view key, IntRange range = {}) const;
  Result<std::vector<int64_t>> get_ints_or_empty(std::string_view key, IntRange range = {}) const;
  Result<std::vector<double>> get_doubles(std::string_view key) const;
  Result<std::vector<std::string>> get_strings(std::string_view key) const;
  Result<std::vector<std::string>> get_strings_or_empty(std::string_view key) const;
  // One integer or a list of them, as eos_token_id is written; absent: empty.
  Result<std::vector<int64_t>> get_int_or_ints(std::string_view key, IntRange range = {}) const;

  Result<ConfigMap> get_map(std::string_view key) const;           // a member object; its messages carry the longer path
  Result<ConfigMap> get_map_or_empty(std::string_view key) const;  // empty when absent
  Result<std::vector<ConfigMap>> get_maps(std::string_view key) const;

  const std::string& source() const { return source_; }
  std::string path_of(std::string_view key) const;  // "config.json: rope_scaling.factor", for messages about a value
  std::string to_json() const;

 private:
  Result<const ConfigValue*> require(std::string_view key) const;
  Status wrong_type(const std::string& path, const ConfigValue& value, std::string_view wanted) const;
  ConfigMap descend(const ConfigObject& object, std::string_view key) const;

  std::shared_ptr<const ConfigObject> object_;  // shares ownership with the root it was taken from
  std::string source_;
  std::string prefix_;  // "rope_scaling." or empty
};

}  // namespace choral::io
