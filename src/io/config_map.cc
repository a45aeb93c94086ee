#include "io/config_map.h"

#include <cmath>

#include "base/printable.h"
#include "io/name_hint.h"

namespace choral::io {
namespace {

// What stands there, short enough for a message.
std::string shown(const ConfigValue& value) {
  switch (value.type()) {
    case ConfigValue::Type::kArray: return fmt::format("an array of {}", value.if_array()->size());
    case ConfigValue::Type::kObject: return "an object";
    case ConfigValue::Type::kString: return fmt::format("the string \"{}\"", printable(*value.if_string(), 40));
    default: return fmt::format("the {} {}", value.type_name(), value.to_json());
  }
}

}  // namespace

ConfigMap::ConfigMap(ConfigObject object, std::string source)
    : object_(std::make_shared<const ConfigObject>(std::move(object))), source_(std::move(source)) {}

const ConfigObject& ConfigMap::object() const {
  static const ConfigObject kEmpty;
  return object_ ? *object_ : kEmpty;
}

const ConfigValue* ConfigMap::find(std::string_view key) const {
  const ConfigValue* value = object().find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

std::string ConfigMap::path_of(std::string_view key) const {
  return fmt::format("{}{}{}{}", source_, source_.empty() ? "" : ": ", prefix_, printable(key));
}

std::string ConfigMap::to_json() const { return ConfigValue(object()).to_json(); }

Status ConfigMap::wrong_type(const std::string& path, const ConfigValue& value, std::string_view wanted) const {
  return corrupt("{} is {}, but {} is needed", path, shown(value), wanted);
}

Result<const ConfigValue*> ConfigMap::require(std::string_view key) const {
  if (const ConfigValue* value = find(key)) return value;
  NameHint hint(key);
  for (const auto& member : members()) hint.consider(member.key);
  return corrupt("{} is missing{}", path_of(key), object_ && object_->find(key) != nullptr ? " (it is null)" : hint.text());
}

ConfigMap ConfigMap::descend(const ConfigObject& object, std::string_view key) const {
  ConfigMap out;
  out.object_ = std::shared_ptr<const ConfigObject>(object_, &object);
  out.source_ = source_;
  out.prefix_ = fmt::format("{}{}.", prefix_, printable(key));
  return out;
}

namespace {

Status check_range(const std::string& path, int64_t value, IntRange range) {
  if (value >= range.min && value <= range.max) return {};
  return corrupt("{} is {}, but must be from {} to {}", path, value, range.min, range.max);
}

}  // namespace

Result<int64_t> ConfigMap::get_int(std::string_view key, IntRange range) const {
  CHORAL_TRY(const ConfigValue* value, require(key));
  const auto number = value->as_int();
  if (!number) return wrong_type(path_of(key), *value, "an integer");
  CHORAL_RETURN_IF_ERROR(check_range(path_of(key), *number, range));
  return *number;
}

Result<int64_t> ConfigMap::get_int_or(std::string_view key, int64_t absent, IntRange range) const {
  if (!contains(key)) return absent;
  return get_int(key, range);
}

Result<double> ConfigMap::get_double(std::string_view key, DoubleRange range) const {
  CHORAL_TRY(const ConfigValue* value, require(key));
  const auto number = value->as_double();
  if (!number) return wrong_type(path_of(key), *value, "a number");
  if (!std::isfinite(*number)) return corrupt("{} is not a finite number", path_of(key));
  if (*number < range.min || *number > range.max) {
    return corrupt("{} is {}, but must be from {} to {}", path_of(key), *number, range.min, range.max);
  }
  return *number;
}

Result<double> ConfigMap::get_double_or(std::string_view key, double absent, DoubleRange range) const {
  if (!contains(key)) return absent;
  return get_double(key, range);
}

Result<bool> ConfigMap::get_bool(std::string_view key) const {
  CHORAL_TRY(const ConfigValue* value, require(key));
  if (const bool* b = value->if_bool()) return *b;
  return wrong_type(path_of(key), *value, "true or false");
}

Result<bool> ConfigMap::get_bool_or(std::string_view key, bool absent) const {
  if (!contains(key)) return absent;
  return get_bool(key);
}

Result<std::string> ConfigMap::get_string(std::string_view key) const {
  CHORAL_TRY(const ConfigValue* value, require(key));
  if (const std::string* text = value->if_string()) return *text;
  return wrong_type(path_of(key), *value, "a string");
}

Result<std::string> ConfigMap::get_string_or(std::string_view key, std::string_view absent) const {
  if (!contains(key)) return std::string(absent);
  return get_string(key);
}

Result<std::vector<int64_t>> ConfigMap::get_ints(std::string_view key, IntRange range) const {
  CHORAL_TRY(const ConfigValue* value, require(key));
  const ConfigArray* array = value->if_array();
  if (array == nullptr) return wrong_type(path_of(key), *value, "an array of integers");
  std::vector<int64_t> out;
  out.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    const auto path = [&] { return fmt::format("{}[{}]", path_of(key), i); };
    const auto number = (*array)[i].as_int();
    if (!number) return wrong_type(path(), (*array)[i], "an integer");
    if (*number < range.min || *number > range.max) return check_range(path(), *number, range);
    out.push_back(*number);
  }
  return out;
}

Result<std::vector<int64_t>> ConfigMap::get_ints_or_empty(std::string_view key, IntRange range) const {
  if (!contains(key)) return std::vector<int64_t>{};
  return get_ints(key, range);
}

Result<std::vector<int64_t>> ConfigMap::get_int_or_ints(std::string_view key, IntRange range) const {
  const ConfigValue* value = find(key);
  if (value == nullptr) return std::vector<int64_t>{};
  if (value->if_array() != nullptr) return get_ints(key, range);
  CHORAL_TRY(const int64_t one, get_int(key, range));
  return std::vector<int64_t>{one};
}

Result<std::vector<double>> ConfigMap::get_doubles(std::string_view key) const {
  CHORAL_TRY(const ConfigValue* value, require(key));
  const ConfigArray* array = value->if_array();
  if (array == nullptr) return wrong_type(path_of(key), *value, "an array of numbers");
  std::vector<double> out;
  out.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    const auto number = (*array)[i].as_double();
    if (!number || !std::isfinite(*number)) {
      return wrong_type(fmt::format("{}[{}]", path_of(key), i), (*array)[i], "a finite number");
    }
    out.push_back(*number);
  }
  return out;
}

Result<std::vector<std::string>> ConfigMap::get_strings(std::string_view key) const {
  CHORAL_TRY(const ConfigValue* value, require(key));
  const ConfigArray* array = value->if_array();
  if (array == nullptr) return wrong_type(path_of(key), *value, "an array of strings");
  std::vector<std::string> out;
  out.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    const std::string* text = (*array)[i].if_string();
    if (text == nullptr) return wrong_type(fmt::format("{}[{}]", path_of(key), i), (*array)[i], "a string");
    out.push_back(*text);
  }
  return out;
}

Result<std::vector<std::string>> ConfigMap::get_strings_or_empty(std::string_view key) const {
  if (!contains(key)) return std::vector<std::string>{};
  return get_strings(key);
}

Result<ConfigMap> ConfigMap::get_map(std::string_view key) const {
  CHORAL_TRY(const ConfigValue* value, require(key));
  const ConfigObject* object = value->if_object();
  if (object == nullptr) return wrong_type(path_of(key), *value, "an object");
  return descend(*object, key);
}

Result<ConfigMap> ConfigMap::get_map_or_empty(std::string_view key) const {
  if (!contains(key)) return descend(ConfigMap().object(), key);
  return get_map(key);
}

Result<std::vector<ConfigMap>> ConfigMap::get_maps(std::string_view key) const {
  CHORAL_TRY(const ConfigValue* value, require(key));
  const ConfigArray* array = value->if_array();
  if (array == nullptr) return wrong_type(path_of(key), *value, "an array of objects");
  std::vector<ConfigMap> out;
  out.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    const std::string at = fmt::format("{}[{}]", key, i);
    const ConfigObject* object = (*array)[i].if_object();
    if (object == nullptr) return wrong_type(path_of(at), (*array)[i], "an object");
    out.push_back(descend(*object, at));
  }
  return out;
}

}  // namespace choral::io
