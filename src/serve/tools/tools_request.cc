#include "serve/tools/tools_request.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/printable.h"
#include "serve/tools/tool_constraint.h"
#include "serve/tools/tools_array.h"

namespace choral::serve {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr size_t kMaxChoiceBytes = 64 * 1024;

// One field's JSON, in a parser of its own that must outlive it. Nothing when it is absent or null.
class Field {
 public:
  Status parse(std::string_view text, const char* name, size_t max_bytes, const ToolLimits& limits, FieldFault& fault) {
    if (text.empty()) return {};
    if (text.size() > max_bytes) {
      return fault.wrong(Code::kTooLarge, name,
                         fmt::format("Invalid '{}': {} bytes, {} are allowed.", name, text.size(), max_bytes));
    }
    // The array, a tool, its function and the schema below.
    if (parser_.allocate(std::max<size_t>(text.size(), 64), static_cast<size_t>(limits.max_depth) + 4)) {
      return resource_exhausted("no memory to read '{}'", name);
    }
    const auto error = parser_.parse(text.data(), text.size()).get(value_);
    if (error == simdjson::DEPTH_ERROR) {
      return fault.wrong(Code::kTooLarge, name, fmt::format("Invalid '{}': nested more than {} deep.", name, limits.max_depth));
    }
    if (error) {
      return fault.wrong(Code::kInvalidArgument, name,
                         fmt::format("Invalid '{}': it is not JSON: {}.", name, simdjson::error_message(error)));
    }
    given_ = !value_.is_null();
    return {};
  }
  bool given() const { return given_; }
  element value() const { return value_; }

 private:
  simdjson::dom::parser parser_;
  element value_;
  bool given_ = false;
};

class Planner {
 public:
  Planner(const ToolSetting& setting, FieldFault& fault) : setting_(setting), fault_(fault) {}

  Result<ToolPlan> run(const ToolsRequest& request) {
    const ToolLimits& limits = setting_.limits;
    Field tools, choice, parallel;
    CHORAL_RETURN_IF_ERROR(tools.parse(request.tools, "tools", limits.max_bytes, limits, fault_));
    CHORAL_RETURN_IF_ERROR(choice.parse(request.tool_choice, "tool_choice", kMaxChoiceBytes, limits, fault_));
    CHORAL_RETURN_IF_ERROR(parallel.parse(request.parallel_tool_calls, "parallel_tool_calls", kMaxChoiceBytes, limits, fault_));
    if (tools.given()) {
      CHORAL_TRY(plan_.tools, read_tools(tools.value(), limits, fault_));
    }
    if (parallel.given() && parallel.value().get(plan_.parallel)) {
      return fault_.wrong_type("parallel_tool_calls", "a boolean", parallel.value());
    }
    plan_.format = setting_.format;
    plan_.choice = plan_.tools.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
    if (choice.given()) CHORAL_RETURN_IF_ERROR(read_choice(choice.value()));
    // "none" hides them from the model too, as with OpenAI.
    if (plan_.choice == ToolChoice::kNone) {
      plan_.tools.clear();
    } else {
      plan_.tools_json = simdjson::minify(tools.value());
    }
    CHORAL_RETURN_IF_ERROR(see_what_is_shown());
    constrain();
    plan_.keep_special_tokens = plan_.reads_calls() && !plan_.only_arguments && call_marks(plan_.format).is_special;
    return std::move(plan_);
  }

 private:
  Status unknown_value(std::string_view value, std::string field, std::string_view supported) {
    return fault_.wrong(Code::kInvalidArgument, std::move(field),
                        fmt::format("Invalid value: '{}'. Supported values are: {}.", printable(value, 60), supported));
  }
  Status no_such_tool(std::string_view name, std::string field) {
    return fault_.wrong(Code::kInvalidArgument, std::move(field),
                        fmt::format("Tool choice '{}' not found in 'tools' parameter.", printable(name, 64)));
  }
  bool is_tool(std::string_view name) const {
    return std::any_of(plan_.tools.begin(), plan_.tools.end(), [name](const Tool& tool) { return tool.name == name; });
  }

  Status read_choice(element choice) {
    std::string_view word;
    object fields;
    if (!choice.get(word)) {
      if (word == "none") return plan_.choice = ToolChoice::kNone, Status();
      if (word != "auto" && word != "required") return unknown_value(word, "tool_choice", "'none', 'auto', and 'required'");
      CHORAL_RETURN_IF_ERROR(expect_tools());
      plan_.choice = word == "auto" ? ToolChoice::kAuto : ToolChoice::kRequired;
      return {};
    }
    if (choice.get(fields)) return fault_.wrong_type("tool_choice", "one of 'none', 'auto', 'required' or an object", choice);
    CHORAL_RETURN_IF_ERROR(expect_tools());
    element type;
    if (fields.at_key("type").get(type)) return fault_.missing("tool_choice.type");
    if (type.get(word)) return fault_.wrong_type("tool_choice.type", "a string", type);
    if (word == "function") {
      CHORAL_TRY(plan_.function, function_name(fields, "tool_choice"));
      std::erase_if(plan_.tools, [this](const Tool& tool) { return tool.name != plan_.function; });
      plan_.choice = ToolChoice::kNamed;
      return {};
    }
    if (word == "allowed_tools") return read_allowed(fields);
    return unknown_value(word, "tool_choice.type", "'function' and 'allowed_tools'");
  }

  Status expect_tools() {
    if (!plan_.tools.empty()) return {};
    return fault_.wrong(Code::kInvalidArgument, "tool_choice", "'tool_choice' is only allowed when 'tools' are specified.");
  }

  // The name in {"type":"function","function":{"name":…}}, which is one of the tools.
  Result<std::string> function_name(object fields, const std::string& at) {
    element function, name;
    std::string_view text;
    if (fields.at_key("function").get(function)) return fault_.missing(at + ".function");
    if (!function.is_object()) return fault_.wrong_type(at + ".function", "an object", function);
    if (function.at_key("name").get(name)) return fault_.missing(at + ".function.name");
    if (name.get(text)) return fault_.wrong_type(at + ".function.name", "a string", name);
    if (!is_tool(text)) return no_such_tool(text, at + ".function.name");
    return std::string(text);
  }

  Status read_allowed(object fields) {
    const std::string at = "tool_choice.allowed_tools";
    element allowed, mode, list;
    if (fields.at_key("allowed_tools").get(allowed)) return fault_.missing(at);
    if (!allowed.is_object()) return fault_.wrong_type(at, "an object", allowed);
    std::string_view word;
    if (allowed.at_key("mode").get(mode)) return fault_.missing(at + ".mode");
    if (mode.get(word)) return fault_.wrong_type(at + ".mode", "a string", mode);
    if (word != "auto" && word != "required") return unknown_value(word, at + ".mode", "'auto' and 'required'");
    simdjson::dom::array array;
    if (allowed.at_key("tools").get(list)) return fault_.missing(at + ".tools");
    if (list.get(array)) return fault_.wrong_type(at + ".tools", "an array", list);
    std::vector<std::string> names;
    for (const element each : array) {
      const std::string place = fmt::format("{}.tools[{}]", at, names.size());
      object tool;
      if (each.get(tool)) return fault_.wrong_type(place, "an object", each);
      CHORAL_TRY(std::string name, function_name(tool, place));
      names.push_back(std::move(name));
      if (names.size() > setting_.limits.max_tools) return unknown_value("…", at + ".tools", "at most as many names as tools");
    }
    if (names.empty())
      return fault_.wrong(Code::kInvalidArgument, at + ".tools", fmt::format("Invalid '{}.tools': empty array.", at));
    std::erase_if(plan_.tools,
                  [&names](const Tool& tool) { return std::find(names.begin(), names.end(), tool.name) == names.end(); });
    plan_.choice = word == "auto" ? ToolChoice::kAuto : ToolChoice::kRequired;
    return {};
  }

  // A constraint says by itself how a call is written; where the model is free it must know.
  Status see_what_is_shown() {
    if (plan_.choice == ToolChoice::kNone || setting_.shows_tools) return {};
    if (plan_.choice == ToolChoice::kAuto && !setting_.knows_format) {
      return fault_.wrong(
          Code::kUnsupported, "tools",
          "This model's chat template does not show 'tools' to it, and how it writes calls is not known: ask for a "
          "call with 'tool_choice' (\"required\", or a function), or start the server with --tool-call-parser.");
    }
    plan_.needs_showing = true;
    plan_.calls_need_showing = !setting_.shows_calls;
    return {};
  }

  void constrain() {
    switch (plan_.choice) {
      case ToolChoice::kNone: return;
      case ToolChoice::kAuto:
        if (setting_.has_grammars) plan_.constraint = tool_constraint(plan_.format, plan_.tools, false, plan_.parallel);
        return;
      case ToolChoice::kRequired: plan_.constraint = tool_constraint(plan_.format, plan_.tools, true, plan_.parallel); return;
      case ToolChoice::kNamed: {
        // gpt-oss says to whom it speaks before it speaks: without that it answers the user.
        plan_.only_arguments = plan_.format != ToolFormat::kOpenAI || !setting_.has_grammars;
        if (!plan_.only_arguments) {
          plan_.constraint = tool_constraint(plan_.format, plan_.tools, true, false);
          return;
        }
        // Without a compiler for schemas: some JSON object, which is all that OpenAI promises where nothing is strict.
        const bool any_object = !setting_.has_grammars && !plan_.tools.front().strict;
        plan_.constraint.kind = any_object ? StructuredOutput::Kind::kJsonObject : StructuredOutput::Kind::kJsonSchema;
        if (!any_object) plan_.constraint.text = plan_.tools.front().schema;
        return;
      }
    }
  }

  const ToolSetting& setting_;
  FieldFault& fault_;
  ToolPlan plan_;
};

}  // namespace

Result<ToolPlan> plan_tools(const ToolsRequest& request, const ToolSetting& setting, std::string& param) {
  FieldFault fault{param};
  return Planner(setting, fault).run(request);
}

}  // namespace choral::serve
