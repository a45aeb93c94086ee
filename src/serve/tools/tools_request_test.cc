// The tools of a request: what is refused and how it is said, and what constraint and parser follow.
#include "serve/tools/tools_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/openai/answer_plan.h"
#include "text/grammar/json_schema_check.h"

namespace choral::serve {
namespace {

using Kind = StructuredOutput::Kind;
using testing::HasSubstr;

constexpr std::string_view kTools =
    R"([{"type":"function","function":{"name":"get_weather","description":"d","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}},
        {"type":"function","function":{"name":"now"}}])";

Result<ToolPlan> plan(const ToolsRequest& request, const ToolSetting& setting = {ToolFormat::kHermes, true, {}}) {
  std::string param;
  return plan_tools(request, setting, param);
}

TEST(ToolsRequest, SaysWhichFieldIsWrong) {
  const auto refuse = [](ToolsRequest request, std::string_view param, std::string_view says) {
    std::string named;
    const auto made = plan_tools(request, {ToolFormat::kHermes, true, {}}, named);
    ASSERT_FALSE(made.ok()) << request.tools << request.tool_choice;
    EXPECT_EQ(named, param) << request.tools;
    EXPECT_THAT(made.status().message(), HasSubstr(std::string(says)));
  };
  const auto tools = [&](std::string_view text, std::string_view param, std::string_view says) {
    refuse({text, "", ""}, param, says);
  };
  const auto function = [&](const std::string& inside, std::string_view param, std::string_view says) {
    const std::string text = R"([{"type":"function","function":{)" + inside + "}}]";
    refuse({text, "", ""}, param, says);
  };
  tools("{", "tools", "not JSON");
  tools("{}", "tools", "Invalid type for 'tools': expected an array, but got an object instead.");
  tools("[7]", "tools[0]", "Invalid type for 'tools[0]': expected an object, but got a number instead.");
  tools("[{}]", "tools[0].type", "Missing required parameter: 'tools[0].type'.");
  tools(R"([{"type":"custom"}])", "tools[0].type", "Invalid value: 'custom'. Supported values are: 'function'.");
  tools(R"([{"type":"function"}])", "tools[0].function", "Missing required parameter");
  function("", "tools[0].function.name", "Missing required parameter: 'tools[0].function.name'.");
  function(R"("name":7)", "tools[0].function.name", "expected a string, but got a number");
  function(R"("name":"a b")", "tools[0].function.name",
           "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.");
  function(R"("name":"")", "tools[0].function.name", "does not match pattern");
  function(R"("name":"é")", "tools[0].function.name", "does not match pattern");
  function("\"name\":\"" + std::string(129, 'a') + "\"", "tools[0].function.name",
           "maximum length 128, but got a string with length 129");
  function(R"("name":"f","description":7)", "tools[0].function.description", "expected a string");
  function(R"("name":"f","strict":"yes")", "tools[0].function.strict", "expected a boolean");
  function(R"("name":"f","parameters":"x")", "tools[0].function.parameters", "expected an object, but got a string");
  function(R"("name":"f","parameters":{"type":"string"})", "tools[0].function.parameters",
           "Invalid schema for function 'f': schema must be a JSON Schema of 'type: \"object\"'");
  // What killed servers: a pattern or a type that is none.
  function(R"("name":"f","parameters":{"type":"object","properties":{"a":{"type":"string","pattern":"foo**"}}})",
           "tools[0].function.parameters", "properties.a.pattern: regular expression, byte 4: nothing to repeat");
  function(R"("name":"f","parameters":{"type":"object","properties":{"a":{"type":"strng"}}})", "tools[0].function.parameters",
           "properties.a.type: a type is one of");
  function(R"("name":"f","strict":true,"parameters":{"type":"object","uniqueItems":true})", "tools[0].function.parameters",
           "uniqueItems: this keyword");
  tools(R"([{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])", "tools[1].function.name",
        "another tool");
  std::string many = "[";
  for (int i = 0; i < 129; ++i)
    many += (i ? "," : "") + std::string(R"({"type":"function","function":{"name":"f)") + std::to_string(i) + "\"}}";
  tools(many + "]", "tools", "maximum length 128, but got an array with length 129");
  std::string deep = R"([{"type":"function","function":{"name":"f","parameters":)";
  for (int i = 0; i < 100; ++i) deep += R"({"items":)";
  for (int i = 0; i < 100; ++i) deep += i ? "}" : "{}}";
  tools(deep + "}}]", "tools", "nested more than 64 deep");

  refuse({"", "\"required\"", ""}, "tool_choice", "'tool_choice' is only allowed when 'tools' are specified.");
  refuse({"", R"({"type":"function","function":{"name":"f"}})", ""}, "tool_choice", "only allowed when");
  refuse({kTools, "\"any\"", ""}, "tool_choice", "Invalid value: 'any'. Supported values are: 'none', 'auto', and 'required'.");
  refuse({kTools, "7", ""}, "tool_choice", "Invalid type for 'tool_choice'");
  refuse({kTools, "{}", ""}, "tool_choice.type", "Missing");
  refuse({kTools, R"({"type":"function"})", ""}, "tool_choice.function", "Missing");
  refuse({kTools, R"({"type":"function","function":{"name":"other"}})", ""}, "tool_choice.function.name",
         "Tool choice 'other' not found in 'tools' parameter.");
  refuse({kTools, R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}})", ""},
         "tool_choice.allowed_tools.tools", "empty array");
  refuse({kTools, "", "\"yes\""}, "parallel_tool_calls", "expected a boolean, but got a string");
}

TEST(ToolsRequest, WithoutToolsThereIsNothingToDo) {
  for (const ToolsRequest& request : {ToolsRequest{}, ToolsRequest{"null", "null", "null"},
                                      ToolsRequest{"[]", "\"none\"", "true"}, ToolsRequest{kTools, "\"none\"", ""}}) {
    const auto made = plan(request);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_FALSE(made->reads_calls());
    EXPECT_EQ(made->constraint.kind, Kind::kNone);
    EXPECT_TRUE(made->tools_json.empty());
  }
}

TEST(ToolsRequest, AutoIsConstrainedWhereCallsHaveMarkers) {
  const auto hermes = plan({kTools, "", ""});
  ASSERT_TRUE(hermes.ok());
  EXPECT_EQ(hermes->choice, ToolChoice::kAuto);
  EXPECT_FALSE(hermes->keep_special_tokens);
  ASSERT_EQ(hermes->constraint.kind, Kind::kStructuralTag);
  const auto tag = nlohmann::json::parse(hermes->constraint.text);
  EXPECT_EQ(tag["format"]["type"], "triggered_tags");
  EXPECT_EQ(tag["format"]["triggers"][0], "<tool_call>");
  EXPECT_EQ(tag["format"]["tags"].size(), 2u);
  EXPECT_EQ(tag["format"]["tags"][0]["begin"], "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ");
  EXPECT_EQ(tag["format"]["tags"][0]["content"]["json_schema"]["required"][0], "city");
  EXPECT_EQ(tag["format"]["tags"][0]["content"]["max_whitespace_cnt"], 64);
  EXPECT_EQ(tag["format"]["stop_after_first"], false);
  EXPECT_EQ(plan({kTools, "\"auto\"", "false"})->parallel, false);
  EXPECT_EQ(plan({kTools, "", ""}, {ToolFormat::kJson, true, {}})->constraint.kind, Kind::kNone);
  EXPECT_EQ(plan({kTools, "", ""}, {ToolFormat::kHermes, false, {}})->constraint.kind, Kind::kNone);
  EXPECT_TRUE(plan({kTools, "", ""}, {ToolFormat::kDeepSeekV3, true, {}})->keep_special_tokens);
}

// Wherever such an answer is cut, streamed or not, it has the beginnings of its calls and no text.
void expect_beginnings(const ToolPlan& plan, std::string_view answer, const ReadAnswer& all) {
  for (size_t cut = 0; cut < answer.size(); ++cut) {
    const auto parse = [&](Announce announce) {
      return read_answer(make_answer_reader({.tools = plan}, announce), answer.substr(0, cut), AnswerEnd::kCut);
    };
    const ReadAnswer whole = parse(Announce::kWhole), early = parse(Announce::kEarly);
    EXPECT_EQ(whole.content + early.content, "") << answer.substr(0, cut);
    ASSERT_EQ(whole.calls.size(), early.calls.size()) << answer.substr(0, cut);
    for (size_t i = 0; i < whole.calls.size(); ++i) {
      EXPECT_EQ(whole.calls[i].name, all.calls[i].name);
      EXPECT_EQ(whole.calls[i].arguments, early.calls[i].arguments);
      EXPECT_TRUE(all.calls[i].arguments.starts_with(whole.calls[i].arguments)) << whole.calls[i].arguments;
    }
  }
}

// What a tag's content lets through for the arguments of a city, or for none.
std::string written_content(const nlohmann::json& content, ToolFormat format, std::string_view city, int number) {
  const ParameterMarks& marks = parameter_marks(format);
  if (content["type"] == "sequence") {
    return std::to_string(number) + content["elements"][1]["value"].get<std::string>() +
           written_content(content["elements"][2], format, city, number);
  }
  if (!content.contains("style")) return city.empty() ? "{}" : fmt::format(R"({{"city":"{}"}})", city);
  return city.empty() ? ""
                      : fmt::format("{}city{}{}{}{}", marks.key_begin, marks.key_end, marks.value_begin, city, marks.value_end);
}

TEST(ToolsRequest, EveryConstraintIsWellFormedAndItsCallsAreRead) {
  for (const CallMarks& marks : all_call_marks()) {
    const auto made = plan({kTools, "\"required\"", "true"}, {marks.format, true, {}});
    ASSERT_TRUE(made.ok());
    ASSERT_EQ(made->constraint.kind, Kind::kStructuralTag);
    EXPECT_TRUE(text::check_structural_tag(made->constraint.text, {}).ok());
    // An answer written as the tag says, by hand: two calls.
    const auto tag = nlohmann::json::parse(made->constraint.text)["format"];
    const bool around = tag["type"] == "tag";
    const auto& list = around ? tag["content"] : tag;
    std::string answer = around ? tag["begin"].get<std::string>() : "";
    for (int i = 0; i < 2; ++i) {
      const auto& call = list["tags"][i];
      if (i > 0) answer += list["separator"].get<std::string>();
      answer += call["begin"].get<std::string>() + written_content(call["content"], marks.format, i ? "" : "Rome", i) +
                call["end"].get<std::string>();
    }
    if (around) answer += tag["end"].get<std::string>();
    const ReadAnswer parsed = read_answer(make_answer_reader({.tools = *made}, Announce::kWhole), answer, AnswerEnd::kOver);
    EXPECT_EQ(parsed.content, "") << answer;
    ASSERT_EQ(parsed.calls.size(), 2u) << answer;
    EXPECT_EQ(parsed.calls[0].name, "get_weather");
    EXPECT_EQ(nlohmann::json::parse(parsed.calls[0].arguments), nlohmann::json::parse(R"({"city":"Rome"})"));
    EXPECT_EQ(parsed.calls[1].name, "now");
    expect_beginnings(*made, answer, parsed);
  }
}

TEST(ToolsRequest, ANamedFunctionGivesItsSchema) {
  constexpr std::string_view kNamed = R"({"type":"function","function":{"name":"get_weather"}})";
  const auto made = plan({kTools, kNamed, ""});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->choice, ToolChoice::kNamed);
  EXPECT_EQ(made->function, "get_weather");
  EXPECT_EQ(made->constraint.kind, Kind::kJsonSchema);
  EXPECT_EQ(nlohmann::json::parse(made->constraint.text)["required"][0], "city");
  EXPECT_EQ(plan({kTools, kNamed, ""}, {ToolFormat::kHermes, false, {}})->constraint.kind, Kind::kJsonObject);
  const ReadAnswer parsed =
      read_answer(make_answer_reader({.tools = *made}, Announce::kWhole), "{\"city\":\"x\"}", AnswerEnd::kOver);
  EXPECT_EQ(parsed.calls.at(0).name, "get_weather");
}

TEST(ToolsRequest, AllowedToolsNarrowTheChoice) {
  const auto made = plan(
      {kTools,
       R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"now"}}]}})",
       ""});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->choice, ToolChoice::kRequired);
  ASSERT_EQ(made->tools.size(), 1u);
  EXPECT_EQ(made->tools[0].name, "now");
  EXPECT_THAT(made->constraint.text, Not(HasSubstr("get_weather")));
}

TEST(ToolsRequest, WhatCannotBeKeptIsAnyObjectUnlessStrict) {
  const auto made = plan(
      {R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}}}])",
       "\"required\"", ""});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->tools[0].schema, R"({"type":"object"})");
  EXPECT_EQ(
      plan({R"([{"type":"function","function":{"name":"f","parameters":{"properties":{"a":{}}}}}])", "", ""})->tools[0].schema,
      R"({"type":"object","properties":{"a":{}}})");
}

TEST(PlanTools, WhatTheTemplateDoesNotShowIsShownOrRefused) {
  constexpr std::string_view kOneTool = R"([{"type":"function","function":{"name":"f"}}])";
  ToolSetting setting{
      .format = ToolFormat::kHermes, .has_grammars = true, .limits = {}, .shows_tools = false, .shows_calls = false};
  std::string param;
  for (const char* choice : {"", "\"auto\"", "\"required\"", R"({"type":"function","function":{"name":"f"}})"}) {
    const auto made = plan_tools({kOneTool, choice, ""}, setting, param);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_TRUE(made->needs_showing && made->calls_need_showing) << choice;
  }
  EXPECT_FALSE(plan_tools({kOneTool, "\"none\"", ""}, setting, param)->needs_showing);
  setting.knows_format = false;
  EXPECT_TRUE(plan_tools({kOneTool, "\"required\"", ""}, setting, param)->needs_showing) << "the constraint writes the call";
  const auto refused = plan_tools({kOneTool, "\"auto\"", ""}, setting, param);
  EXPECT_EQ(refused.status().code(), Code::kUnsupported);
  EXPECT_THAT(refused.status().message(), HasSubstr("--tool-call-parser"));
  EXPECT_EQ(param, "tools");
}

}  // namespace
}  // namespace choral::serve
