#include "io/config_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/json_quoted.h"
#include "base/printable.h"

namespace choral::io {
namespace {

void append_json(std::string& out, const ConfigValue& value) {
  if (const bool* b = value.if_bool()) {
    out += *b ? "true" : "false";
  } else if (value.type() == ConfigValue::Type::kInt) {
    out += fmt::format("{}", *value.as_int());
  } else if (value.type() == ConfigValue::Type::kDouble) {
    const double d = *value.as_double();
    const std::string digits = std::isfinite(d) ? fmt::format("{}", d) : "null";
    out += digits;
    if (std::isfinite(d) && digits.find_first_of(".e") == std::string::npos) out += ".0";  // stays a double when read back
  } else if (const std::string* s = value.if_string()) {
    out += json_quoted(*s);
  } else if (const ConfigArray* array = value.if_array()) {
    out += '[';
    for (size_t i = 0; i < array->size(); ++i) {
      if (i > 0) out += ", ";
      append_json(out, (*array)[i]);
    }
    out += ']';
  } else if (const ConfigObject* object = value.if_object()) {
    out += '{';
    bool first = true;
    for (const auto& member : object->members()) {
      if (!std::exchange(first, false)) out += ", ";
      out += json_quoted(member.key) + ": ";
      append_json(out, member.value);
    }
    out += '}';
  } else {
    out += "null";
  }
}

}  // namespace

ConfigObject::ConfigObject() = default;
ConfigObject::~ConfigObject() = default;
ConfigObject::ConfigObject(const ConfigObject&) = default;
ConfigObject::ConfigObject(ConfigObject&&) noexcept = default;
ConfigObject& ConfigObject::operator=(const ConfigObject&) = default;
ConfigObject& ConfigObject::operator=(ConfigObject&&) noexcept = default;

Result<ConfigObject> ConfigObject::from_members(std::vector<ConfigMember> members) {
  ConfigObject out;
  out.members_ = std::move(members);
  out.sort_names();
  for (size_t i = 1; i < out.by_name_.size(); ++i) {
    const auto& key = out.members_[out.by_name_[i]].key;
    if (key == out.members_[out.by_name_[i - 1]].key) return corrupt("the key '{}' stands twice in one object", printable(key));
  }
  return out;
}

void ConfigObject::sort_names() {
  by_name_.resize(members_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(), [this](uint32_t a, uint32_t b) { return members_[a].key < members_[b].key; });
}

std::span<const ConfigMember> ConfigObject::members() const { return members_; }

const ConfigValue* ConfigObject::find(std::string_view key) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), key,
                                   [this](uint32_t i, std::string_view wanted) { return members_[i].key < wanted; });
  return at != by_name_.end() && members_[*at].key == key ? &members_[*at].value : nullptr;
}

void ConfigObject::set(std::string_view key, ConfigValue value) {
  for (auto& member : members_) {
    if (member.key == key) {
      member.value = std::move(value);
      return;
    }
  }
  members_.push_back({std::string(key), std::move(value)});
  sort_names();
}

void ConfigObject::erase(std::string_view key) {
  std::erase_if(members_, [key](const ConfigMember& member) { return member.key == key; });
  sort_names();
}

// Out of line: inlined, GCC 12 sees overflows in std::variant that are not there, and every user compiles the tree's copying.
ConfigValue::ConfigValue() = default;
ConfigValue::~ConfigValue() = default;
ConfigValue::ConfigValue(const ConfigValue&) = default;
ConfigValue::ConfigValue(ConfigValue&&) noexcept = default;
ConfigValue& ConfigValue::operator=(const ConfigValue&) = default;
ConfigValue& ConfigValue::operator=(ConfigValue&&) noexcept = default;

std::string_view ConfigValue::type_name() const {
  constexpr std::array<std::string_view, 7> kNames{"null", "boolean", "integer", "number", "string", "array", "object"};
  return kNames[value_.index()];
}

std::optional<int64_t> ConfigValue::as_int() const {
  if (const auto* i = std::get_if<int64_t>(&value_)) return *i;
  const auto* d = std::get_if<double>(&value_);
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double no longer says which integer was meant
  if (d == nullptr || !(std::fabs(*d) <= kExact) || std::trunc(*d) != *d) return std::nullopt;
  return static_cast<int64_t>(*d);
}

std::optional<double> ConfigValue::as_double() const {
  if (const auto* d = std::get_if<double>(&value_)) return *d;
  if (const auto* i = std::get_if<int64_t>(&value_)) return static_cast<double>(*i);
  return std::nullopt;
}

std::string ConfigValue::to_json() const {
  std::string out;
  append_json(out, *this);
  return out;
}

}  // namespace choral::io
