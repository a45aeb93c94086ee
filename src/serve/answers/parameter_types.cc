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

// What a value may be, as bits.
using Kinds = unsigned;
constexpr Kinds kString = 1, kChosen = 2, kNull = 4, kOther = 8, kAny = 15;  // kChosen: a string that the schema names

Kinds of_word(element word) {
  std::string_view text;
  if (word.get(text)) return kAny;
  return text == "string" ? kString | kChosen : text == "null" ? kNull : kOther;
}

Kinds of_value(element value) { return value.is_string() ? kChosen : value.is_null() ? kNull : kOther; }

// Any of what each of a list says.
template <class Read>
Kinds of_any(array list, Read read) {
  Kinds kinds = 0;
  for (const element each : list) kinds |= read(each);
  return kinds == 0 ? kAny : kinds;
}

// `root`: what local references lead into.
Kinds of_schema(element schema, element root, int depth) {
  object fields;
  element found;
  array list;
  std::string_view target;
  if (depth > 8 || schema.get(fields)) return kAny;
  if (!fields.at_key("enum").get(list)) return of_any(list, of_value);
  if (!fields.at_key("const").get(found)) return of_value(found);
  if (!fields.at_key("type").get(found)) return found.get(list) ? of_word(found) : of_any(list, of_word);
  const auto deeper = [&](element each) { return of_schema(each, root, depth + 1); };
  if (!fields.at_key("$ref").get(target)) {
    const bool is_local = target.starts_with("#/") && !root.at_pointer(target.substr(1)).get(found);
    return is_local ? deeper(found) : kAny;
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    if (!fields.at_key(key).get(list)) return of_any(list, deeper);
  }
  Kinds kinds = kAny;
  if (!fields.at_key("allOf").get(list)) {
    for (const element each : list) kinds &= deeper(each);
  }
  return kinds == 0 ? kAny : kinds;
}

ParameterType type_of(Kinds kinds) {
  constexpr Kinds kText = kString | kChosen;
  if (kinds == kText) return ParameterType::kText;
  if (kinds == kChosen) return ParameterType::kChoice;
  if ((kinds & ~kText) == kNull && kinds != kNull) return ParameterType::kTextOrNull;
  return (kinds & kText) == 0 ? ParameterType::kValue : ParameterType::kUnknown;
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
    element parameters;
    object properties;
    if (tool.at_pointer("/function/name").get(function) || tool.at_pointer("/function/parameters").get(parameters) ||
        parameters.at_pointer("/properties").get(properties))
      continue;
    for (const auto& [name, parameter] : properties)
      types.types_[{std::string(function), std::string(name)}] = type_of(of_schema(parameter, parameters, 0));
  }
  return types;
}

ParameterType ParameterTypes::of(std::string_view function, std::string_view parameter) const {
  const auto found = types_.find(std::pair(std::string(function), std::string(parameter)));
  return found == types_.end() ? ParameterType::kUnknown : found->second;
}

std::string ParameterTypes::json_of(std::string_view written, ParameterType type) {
  const std::string_view value = trimmed(written);
  if (type == ParameterType::kChoice) return json_quoted(value);
  if (type == ParameterType::kTextOrNull) return value == "null" || value == "None" ? "null" : json_quoted(written);
  if (is_json_value(value)) return std::string(value);
  if (std::string json = json_of_python(value); !json.empty()) return json;
  return json_quoted(written);
}

}  // namespace choral::serve
