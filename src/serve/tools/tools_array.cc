#include "serve/tools/tools_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/printable.h"
#include "serve/answers/function_name.h"
#include "text/grammar/json_schema_check.h"

namespace choral::serve {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::string_view kAnyObject = R"({"type":"object"})";
constexpr size_t kMaxToolNameBytes = 128;

std::string_view type_words(element value) {
  switch (value.type()) {
    case simdjson::dom::element_type::ARRAY: return "an array";
    case simdjson::dom::element_type::OBJECT: return "an object";
    case simdjson::dom::element_type::STRING: return "a string";
    case simdjson::dom::element_type::BOOL: return "a boolean";
    case simdjson::dom::element_type::NULL_VALUE: return "null";
    default: return "a number";
  }
}

class Reader {
 public:
  Reader(const ToolLimits& limits, FieldFault& fault) : limits_(limits), fault_(fault) {}

  Result<Tool> read(element value, size_t index) {
    const std::string at = fmt::format("tools[{}]", index);
    object tool, function;
    if (value.get(tool)) return fault_.wrong_type(at, "an object", value);
    element field;
    if (tool.at_key("type").get(field)) return fault_.missing(at + ".type");
    std::string_view type;
    if (field.get(type)) return fault_.wrong_type(at + ".type", "a string", field);
    if (type != "function") {
      return fault_.wrong(Code::kInvalidArgument, at + ".type",
                          fmt::format("Invalid value: '{}'. Supported values are: 'function'.", printable(type, 60)));
    }
    if (tool.at_key("function").get(field)) return fault_.missing(at + ".function");
    if (field.get(function)) return fault_.wrong_type(at + ".function", "an object", field);
    return read_function(function, at + ".function");
  }

 private:
  Result<Tool> read_function(object function, const std::string& at) {
    Tool tool;
    element field;
    if (function.at_key("name").get(field)) return fault_.missing(at + ".name");
    std::string_view text;
    if (field.get(text)) return fault_.wrong_type(at + ".name", "a string", field);
    CHORAL_RETURN_IF_ERROR(check_name(text, at + ".name"));
    tool.name = text;
    if (!function.at_key("description").get(field) && !field.is_null()) {
      if (field.get(text)) return fault_.wrong_type(at + ".description", "a string", field);
      if (text.size() > limits_.max_description_bytes) return too_long(at + ".description", limits_.max_description_bytes, text);
    }
    if (!function.at_key("strict").get(field) && !field.is_null() && field.get(tool.strict)) {
      return fault_.wrong_type(at + ".strict", "a boolean", field);
    }
    tool.schema = kAnyObject;
    if (!function.at_key("parameters").get(field) && !field.is_null()) {
      if (!field.is_object()) return fault_.wrong_type(at + ".parameters", "an object", field);
      CHORAL_RETURN_IF_ERROR(read_schema(field, at + ".parameters", tool));
    }
    return tool;
  }

  Status check_name(std::string_view name, const std::string& field) {
    if (name.size() > kMaxToolNameBytes) return too_long(field, kMaxToolNameBytes, name);
    if (is_function_name(name, false)) {
      if (names_.insert(std::string(name)).second) return {};
      return fault_.wrong(Code::kInvalidArgument, field,
                          fmt::format("Invalid '{}': another tool is named '{}' too.", field, name));
    }
    return fault_.wrong(Code::kInvalidArgument, field,
                        fmt::format("Invalid '{}': string does not match pattern. Expected a string that matches the pattern "
                                    "'^[a-zA-Z0-9_-]+$'.",
                                    field));
  }

  Status too_long(const std::string& field, size_t limit, std::string_view text) {
    return fault_.wrong(
        Code::kInvalidArgument, field,
        fmt::format("Invalid '{}': string too long. Expected a string with maximum length {}, but got a string with "
                    "length {} instead.",
                    field, limit, text.size()));
  }

  Status read_schema(element schema, const std::string& field, Tool& tool) {
    const auto invalid = [&](Code code, std::string_view why) {
      return fault_.wrong(code, field, fmt::format("Invalid schema for function '{}': {}.", tool.name, why));
    };
    object fields;
    element type;
    std::string_view name;
    if (!schema.get(fields) && !fields.at_key("type").get(type) && (type.get(name) || name != "object")) {
      return invalid(Code::kInvalidArgument, "schema must be a JSON Schema of 'type: \"object\"'");
    }
    std::string text = simdjson::minify(schema);
    text::GrammarLimits limits;
    limits.max_depth = limits_.max_depth;
    const Status checked = text::check_json_schema(text, limits);
    if (checked.ok()) {
      const bool says_type = !fields.at_key("type").get(type);
      if (fields.begin() != fields.end()) tool.schema = says_type ? text : R"({"type":"object",)" + text.substr(1);
      return {};
    }
    // OpenAI's rule: only what is strict must be kept.
    if (checked.code() == Code::kUnsupported && !tool.strict) return {};
    return invalid(Code::kInvalidArgument, checked.message());
  }

  const ToolLimits& limits_;
  FieldFault& fault_;
  std::unordered_set<std::string> names_;
};

}  // namespace

Status FieldFault::missing(const std::string& field) {
  return wrong(Code::kInvalidArgument, field, fmt::format("Missing required parameter: '{}'.", field));
}

Status FieldFault::wrong_type(const std::string& field, std::string_view expected, element got) {
  return wrong(Code::kInvalidArgument, field,
               fmt::format("Invalid type for '{}': expected {}, but got {} instead.", field, expected, type_words(got)));
}

Result<std::vector<Tool>> read_tools(element tools, const ToolLimits& limits, FieldFault& fault) {
  simdjson::dom::array array;
  if (tools.get(array)) return fault.wrong_type("tools", "an array", tools);
  std::vector<Tool> out;
  Reader reader(limits, fault);
  size_t index = 0;
  for (const element each : array) {
    if (index >= limits.max_tools) {
      return fault.wrong(
          Code::kInvalidArgument, "tools",
          fmt::format("Invalid 'tools': array too long. Expected an array with maximum length {}, but got an array "
                      "with length {} instead.",
                      limits.max_tools, array.size()));
    }
    CHORAL_TRY(Tool tool, reader.read(each, index++));
    out.push_back(std::move(tool));
  }
  return out;
}

}  // namespace choral::serve
