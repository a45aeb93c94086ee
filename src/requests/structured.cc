#include "requests/structured.h"

#include <array>

namespace choral::requests {
namespace {

using Kind = StructuredOutput::Kind;

constexpr std::string_view kGuided = "guided_";

Status put(Request& request, StructuredOutput wanted, std::string_view name) {
  if (request.structured_output.kind != Kind::kNone)
    return invalid_argument(
        "'{}': the answer's form is asked for twice; give one of response_format, structured_outputs, grammar and the like",
        name);
  request.structured_output = std::move(wanted);
  return {};
}

// A schema as an object or, as vLLM takes it too, as JSON in a string.
Result<std::string> schema_text(std::string_view name, const Json& json) {
  if (json.is_object()) return dumped(json);
  if (json.is_boolean()) return dumped(json);
  if (!json.is_string()) return wrong_type(name, "a JSON schema", json);
  return json.get<std::string>();
}

// Options of other servers' grammars that change white space or strictness; ours are xgrammar's defaults.
constexpr std::array<std::string_view, 3> kStyles{"disable_any_whitespace", "disable_additional_properties",
                                                  "whitespace_pattern"};

// One member of structured_outputs. `place` names it.
Status read_wanted(std::string_view place, std::string_view key, const Json& value, Request& request) {
  StructuredOutput wanted;
  if (key == "json_object") {
    wanted.kind = Kind::kJsonObject;
  } else if (key == "json") {
    wanted.kind = Kind::kJsonSchema;
    CHORAL_TRY(wanted.text, schema_text(place, value));
  } else if (key == "choice") {
    wanted.kind = Kind::kChoice;
    CHORAL_RETURN_IF_ERROR(read_value(place, value, wanted.choices));
  } else if (key == "structural_tag") {
    wanted.kind = Kind::kStructuralTag;
    wanted.text = value.is_string() ? value.get<std::string>() : dumped(value);
  } else if (key == "regex" || key == "grammar") {
    wanted.kind = key == "regex" ? Kind::kRegex : Kind::kGrammar;
    CHORAL_RETURN_IF_ERROR(read_value(place, value, wanted.text));
  } else if (std::find(kStyles.begin(), kStyles.end(), key) != kStyles.end()) {
    return unsupported("'{}' is not served", place);
  } else {
    return invalid_argument("'{}' is not known; there are json, regex, choice, grammar, json_object and structural_tag", place);
  }
  return put(request, std::move(wanted), place);
}

}  // namespace

Status read_response_format(std::string_view name, const Json& json, Request& request) {
  if (!json.is_object() || !json.contains("type") || !json["type"].is_string())
    return wrong_type(name, R"(an object with a type, such as {"type": "json_object"})", json);
  const std::string type = json["type"].get<std::string>();
  if (type == "text") return {};
  const bool is_schema = type == "json_schema";
  if ((type == "json_object" || (is_schema && !json.contains("json_schema"))) && json.contains("schema"))
    return read_wanted(fmt::format("{}.schema", name), "json", json["schema"], request);
  if (type == "json_object") return put(request, {.kind = Kind::kJsonObject, .text = {}, .choices = {}}, name);
  if (type == "structural_tag") return put(request, {.kind = Kind::kStructuralTag, .text = dumped(json), .choices = {}}, name);
  if (!is_schema)
    return invalid_argument("'{}.type' is '{}'; there are text, json_object, json_schema and structural_tag", name, shown(type));
  const auto described = json.find("json_schema");
  if (described == json.end() || !described->is_object() || !described->contains("schema"))
    return invalid_argument("'{}.json_schema.schema' is missing", name);
  CHORAL_TRY(std::string schema, schema_text(fmt::format("{}.json_schema.schema", name), (*described)["schema"]));
  return put(request, {.kind = Kind::kJsonSchema, .text = std::move(schema), .choices = {}}, name);
}

Status read_structured_outputs(std::string_view name, const Json& json, Request& request) {
  if (!json.is_object()) return wrong_type(name, "an object", json);
  for (const auto& [key, value] : json.items()) {
    if (value.is_null() || value == false) continue;
    CHORAL_RETURN_IF_ERROR(read_wanted(fmt::format("{}.{}", name, key), key, value, request));
  }
  return {};
}

Status read_guided(std::string_view name, const Json& json, Request& request) {
  return json == false ? Status() : read_wanted(name, name.substr(kGuided.size()), json, request);
}

Status read_body_form(std::string_view name, const Json& json, Request& request) {
  if (json == "") return {};
  return read_wanted(name, name == "json_schema" ? "json" : name == "ebnf" ? "grammar" : name, json, request);
}

}  // namespace choral::requests
