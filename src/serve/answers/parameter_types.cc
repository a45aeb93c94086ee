#include "serve/answers/parameter_types.h"

#include <simdjson.h>

#include "base/ascii.h"
#include "base/json_quoted.h"
#include "serve/answers/json_string.h"
#include "serve/answers/python_value.h"

namespace choral::serve {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

ParameterType together(ParameterType a, ParameterType b) { return a == b ? a : ParameterType::kUnknown; }

// Of what each of a list says.
template <class Read>
ParameterType of_all(array list, Read read) {
  if (list.size() == 0) return ParameterType::kUnknown;
  ParameterType type = read(list.at(0));
  for (const element each : list) type = together(type, read(each));
  return type;
}

ParameterType of_word(element word) {
  std::string_view text;
  if (word.get(text)) return ParameterType::kUnknown;
  return text == "string" ? ParameterType::kText : ParameterType::kValue;
}

ParameterType of_schema(element schema, int depth) {
  object fields;
  element type;
  array list;
  if (depth > 8 || schema.get(fields)) return ParameterType::kUnknown;
  if (!fields.at_key("type").get(type)) {
    return type.get(list) ? of_word(type) : of_all(list, [](element each) { return of_word(each); });
  }
  if (!fields.at_key("enum").get(list)) {
    return of_all(list, [](element each) { return each.is_string() ? ParameterType::kText : ParameterType::kValue; });
  }
  if (element only; !fields.at_key("const").get(only)) return only.is_string() ? ParameterType::kText : ParameterType::kValue;
  for (const char* key : {"anyOf", "oneOf"}) {
    if (!fields.at_key(key).get(list)) return of_all(list, [depth](element each) { return of_schema(each, depth + 1); });
  }
  return ParameterType::kUnknown;
}

}  // namespace

ParameterTypes ParameterTypes::of_tools(std::string_view tools_json) {
  ParameterTypes types;
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(tools_json);
  array tools;
  if (parser.parse(padded).get(tools)) return types;
  for (const element tool : tools) {
    std::string_view function;
    object properties;
    if (tool.at_pointer("/function/name").get(function) || tool.at_pointer("/function/parameters/properties").get(properties))
      continue;
    for (const auto& [name, parameter] : properties)
      types.types_[{std::string(function), std::string(name)}] = of_schema(parameter, 0);
  }
  return types;
}

ParameterType ParameterTypes::of(std::string_view function, std::string_view parameter) const {
  const auto found = types_.find(std::pair(std::string(function), std::string(parameter)));
  return found == types_.end() ? ParameterType::kUnknown : found->second;
}

std::string ParameterTypes::json_of(std::string_view written) {
  const std::string_view value = trimmed(written);
  if (is_json_value(value)) return std::string(value);
  if (std::string json = json_of_python(value); !json.empty()) return json;
  return json_quoted(written);
}

}  // namespace choral::serve
