#include "serve/openai/shown_tools.h"

#include <utility>
#include <vector>

#include "serve/openai/json.h"
#include "serve/tools/call_form.h"

namespace choral::serve {
namespace {

std::string description(const ToolPlan& plan) {
  std::string text =
      "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
      "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n";
  for (const Json& tool : Json::parse(plan.tools_json)) text += dumped(tool) + "\n";
  text += "</tools>\n\n";
  // Such an answer is held to the arguments alone.
  if (plan.only_arguments)
    return text + fmt::format("Call the function {}: return a json object with its arguments.", plan.function);
  const std::pair<std::string, std::string> call{"<function-name>", "<args-json-object>"};
  return text + fmt::format("For each function call, return a json object with function name and arguments like this:\n{}",
                            written_calls(plan.format, std::span(&call, 1)));
}

std::string& text_of(Json& message) { return message["content"].get_ref<std::string&>(); }

// The message with its calls in its text.
Json with_calls_written(const Json& message, ToolFormat format) {
  std::vector<std::pair<std::string, std::string>> calls;
  for (const Json& call : message["tool_calls"]) {
    const Json& function = call["function"];
    const auto arguments = function.find("arguments");
    calls.emplace_back(function["name"].get<std::string>(), arguments == function.end() ? "{}" : dumped(*arguments));
  }
  std::string text = message["content"].get<std::string>();
  if (!calls.empty()) text += (text.empty() ? "" : "\n") + written_calls(format, calls);
  Json written{{"role", message["role"]}, {"content", std::move(text)}};
  if (const auto thoughts = message.find("reasoning_content"); thoughts != message.end())
    written["reasoning_content"] = *thoughts;
  return written;
}

// Calls and results as what the user and the assistant say. Results that follow one another are one message: templates may ask
// for turns.
Json with_calls_as_text(Json messages, ToolFormat format) {
  Json out = Json::array();
  bool is_behind_result = false;
  for (Json& message : messages) {
    const bool is_result = message["role"] == "tool" || message["role"] == "function";
    if (is_result) {
      const std::string result = "<tool_response>\n" + text_of(message) + "\n</tool_response>";
      if (is_behind_result) {
        text_of(out.back()) += "\n" + result;
      } else {
        out.push_back({{"role", "user"}, {"content", result}});
      }
    } else {
      const auto calls = message.find("tool_calls");
      const bool has_calls = calls != message.end() && calls->is_array();
      out.push_back(has_calls ? with_calls_written(message, format) : std::move(message));
    }
    is_behind_result = is_result;
  }
  return out;
}

}  // namespace

std::string messages_with_tools(std::string_view messages_json, const ToolPlan& plan) {
  Json messages = Json::parse(messages_json);
  if (plan.calls_need_showing) messages = with_calls_as_text(std::move(messages), plan.format);
  const std::string tools = description(plan);
  if (messages.front()["role"] == "system") {
    text_of(messages.front()) += "\n\n" + tools;
    return dumped(messages);
  }
  for (Json& message : messages) {
    if (message["role"] != "user") continue;
    text_of(message) = tools + "\n\n" + text_of(message);
    return dumped(messages);
  }
  messages.insert(messages.begin(), Json{{"role", "user"}, {"content", tools}});  // a list of two members would be two messages
  return dumped(messages);
}

}  // namespace choral::serve
