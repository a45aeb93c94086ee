// JSON text -> ConfigMap. On-demand parsing, because the DOM refuses a whole file for one integer beyond 64 bits, and real
// tokenizer_config.json files say "model_max_length": 1000000000000000019884624838656.
#include <simdjson.h>

#include <algorithm>
#include <charconv>

#include "base/printable.h"
#include "io/config_map.h"
#include "io/json_text.h"
#include "io/mapped_file.h"

namespace choral::io {
namespace {

namespace od = simdjson::ondemand;

struct Parse {
  const JsonLimits& limits;
  JsonDocument& document;
  uint64_t values = 0;

  Result<ConfigValue> value(od::value v, int depth);
  Result<ConfigObject> object(od::object o, int depth);
  Result<ConfigArray> array(od::array a, int depth);
};

Result<ConfigValue> number_from(std::string_view token) {
  const size_t end = token.find_last_not_of(" \t\r\n");
  token = token.substr(0, end + 1);
  if (!is_json_number(token)) return corrupt("'{}' is not a number", printable(token, 40));
  const char* last = token.data() + token.size();
  if (token.find_first_of(".eE") == std::string_view::npos) {
    int64_t integer = 0;
    if (std::from_chars(token.data(), last, integer).ec == std::errc()) return ConfigValue(integer);
  }
  double real = 0;
  if (std::from_chars(token.data(), last, real).ec != std::errc()) {
    return corrupt("the number {} is too large or too small", printable(token, 40));
  }
  return ConfigValue(real);
}

Result<ConfigValue> Parse::value(od::value v, int depth) {
  if (++values > limits.max_values) return too_large("more than {} values", limits.max_values);
  od::json_type type = od::json_type::null;
  CHORAL_RETURN_IF_ERROR(json_status(v.type().get(type)));
  switch (type) {
    case od::json_type::object: {
      od::object o;
      CHORAL_RETURN_IF_ERROR(json_status(v.get_object().get(o)));
      CHORAL_TRY(ConfigObject out, object(o, depth + 1));
      return ConfigValue(std::move(out));
    }
    case od::json_type::array: {
      od::array a;
      CHORAL_RETURN_IF_ERROR(json_status(v.get_array().get(a)));
      CHORAL_TRY(ConfigArray out, array(a, depth + 1));
      return ConfigValue(std::move(out));
    }
    case od::json_type::string: {
      std::string_view text;
      CHORAL_RETURN_IF_ERROR(json_status(document.text_of(v.get_raw_json_string()).get(text)));
      CHORAL_RETURN_IF_ERROR(check_utf8(text));
      return ConfigValue(std::string(text));
    }
    case od::json_type::boolean: {
      bool b = false;
      CHORAL_RETURN_IF_ERROR(json_status(v.get_bool().get(b)));
      return ConfigValue(b);
    }
    case od::json_type::null: {
      bool null = false;
      CHORAL_RETURN_IF_ERROR(json_status(v.is_null().get(null)));
      if (!null) return corrupt("a value that begins like null is none");
      return ConfigValue();
    }
    case od::json_type::number: {
      const std::string_view token = v.raw_json_token();
      CHORAL_TRY(ConfigValue out, number_from(token));
      // raw_json_token does not move on; the double reader does, and only its success lets the walk continue. It refuses integers
      // that fit no double, which is_json_number has already ruled out.
      double ignored = 0;
      CHORAL_RETURN_IF_ERROR(json_status(v.get_double().get(ignored)));
      return out;
    }
  }
  return corrupt("a value of no known kind");
}

Result<ConfigObject> Parse::object(od::object o, int depth) {
  if (depth > limits.max_depth) return too_large("nested more than {} deep", limits.max_depth);
  std::vector<ConfigMember> members;
  for (auto field : o) {
    std::string_view key;
    od::value v;
    CHORAL_RETURN_IF_ERROR(json_status(field.error()));
    CHORAL_RETURN_IF_ERROR(json_status(document.text_of(field.key()).get(key)));
    CHORAL_RETURN_IF_ERROR(check_utf8(key));
    std::string name(key);
    CHORAL_RETURN_IF_ERROR(json_status(field.value().get(v)));
    CHORAL_TRY(ConfigValue parsed, value(v, depth));
    members.push_back({std::move(name), std::move(parsed)});
  }
  return ConfigObject::from_members(std::move(members));
}

Result<ConfigArray> Parse::array(od::array a, int depth) {
  if (depth > limits.max_depth) return too_large("nested more than {} deep", limits.max_depth);
  ConfigArray out;
  for (auto element : a) {
    od::value v;
    CHORAL_RETURN_IF_ERROR(json_status(element.get(v)));
    CHORAL_TRY(ConfigValue parsed, value(v, depth));
    out.push_back(std::move(parsed));
  }
  return out;
}

}  // namespace

Result<ConfigMap> ConfigMap::parse_json(std::string_view text, std::string source, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return too_large("{} has {} bytes of JSON, at most {} are read", source, text.size(), limits.max_bytes);
  }
  JsonDocument document;
  Status opened = document.open(text);
  if (!opened.ok()) return std::move(opened).while_(source);
  Parse parse{limits, document};
  auto object = parse.object(document.root(), 1);
  Status status = object.ok() ? document.expect_end() : object.status();
  if (!status.ok()) return std::move(status).while_(fmt::format("{}: near line {}", source, document.line()));
  return ConfigMap(std::move(object).value(), std::move(source));
}

Result<ConfigMap> ConfigMap::read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  CHORAL_TRY(const std::string text, read_whole_file(path, limits.max_bytes));
  return parse_json(text, path.string(), limits);
}

}  // namespace choral::io
