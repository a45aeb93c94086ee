// One value of a configuration: null, bool, integer, double, string, array or object. What config.json and GGUF metadata have in
// common. Objects keep the order of the file (PEFT's pattern tables depend on it) and find a key in O(log n). A value,
// deep-copied.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace choral::io {

class ConfigValue;
struct ConfigMember;

using ConfigArray = std::vector<ConfigValue>;

class ConfigObject {
 public:
  ConfigObject();
  ~ConfigObject();
  ConfigObject(const ConfigObject&);
  ConfigObject(ConfigObject&&) noexcept;
  ConfigObject& operator=(const ConfigObject&);
  ConfigObject& operator=(ConfigObject&&) noexcept;

  // kCorrupt, naming the key, when one stands twice.
  static Result<ConfigObject> from_members(std::vector<ConfigMember> members);

  const ConfigValue* find(std::string_view key) const;  // null when absent; a JSON null is found
  std::span<const ConfigMember> members() const;        // in the order of the file
  void set(std::string_view key, ConfigValue value);    // adds at the end, or replaces in place; O(n)
  void erase(std::string_view key);

 private:
  void sort_names();

  std::vector<ConfigMember> members_;
  std::vector<uint32_t> by_name_;  // indexes into members_, sorted by key
};

class ConfigValue {
 public:
  enum class Type { kNull, kBool, kInt, kDouble, kString, kArray, kObject };

  ConfigValue();
  ~ConfigValue();
  ConfigValue(const ConfigValue&);
  ConfigValue(ConfigValue&&) noexcept;
  ConfigValue& operator=(const ConfigValue&);
  ConfigValue& operator=(ConfigValue&&) noexcept;
  ConfigValue(bool v) : value_(v) {}
  ConfigValue(int64_t v) : value_(v) {}
  ConfigValue(double v) : value_(v) {}
  ConfigValue(std::string v) : value_(std::move(v)) {}
  ConfigValue(const char* v) : value_(std::string(v)) {}
  ConfigValue(ConfigArray v) : value_(std::move(v)) {}
  ConfigValue(ConfigObject v) : value_(std::move(v)) {}

  Type type() const { return static_cast<Type>(value_.index()); }
  std::string_view type_name() const;  // "integer"
  bool is_null() const { return type() == Type::kNull; }

  // Null when the value is of another type. as_int takes a double of integral value (1e6), as_double takes an integer.
  const bool* if_bool() const { return std::get_if<bool>(&value_); }
  const std::string* if_string() const { return std::get_if<std::string>(&value_); }
  const ConfigArray* if_array() const { return std::get_if<ConfigArray>(&value_); }
  const ConfigObject* if_object() const { return std::get_if<ConfigObject>(&value_); }
  std::optional<int64_t> as_int() const;
  std::optional<double> as_double() const;

  std::string to_json() const;  // one line, keys in order; doubles in their shortest exact form

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, ConfigArray, ConfigObject> value_;
};

struct ConfigMember {
  std::string key;
  ConfigValue value;
};

}  // namespace choral::io
