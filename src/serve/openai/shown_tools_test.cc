#include "serve/openai/shown_tools.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace choral::serve {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ToolPlan plan_of(ToolFormat format) {
  ToolPlan plan;
  plan.tools_json = R"([{"type":"function","function":{"name":"add"}},{"type":"function","function":{"name":"sub"}}])";
  plan.choice = ToolChoice::kAuto;
  plan.format = format;
  plan.needs_showing = plan.calls_need_showing = true;
  return plan;
}

ordered_json shown(std::string_view messages, const ToolPlan& plan) {
  return ordered_json::parse(messages_with_tools(messages, plan));
}

TEST(ShownTools, StandInTheSystemsMessageOrInTheUsersFirst) {
  const auto plan = plan_of(ToolFormat::kHermes);
  const auto system = shown(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"2+3?"}])", plan);
  ASSERT_EQ(system.size(), 2U);
  EXPECT_THAT(system[0]["content"].get<std::string>(),
              AllOf(StartsWith("Be brief.\n\n# Tools"), HasSubstr(R"({"type":"function","function":{"name":"sub"}})"),
                    HasSubstr("<tool_call>\n{\"name\": \"<function-name>\", \"arguments\": <args-json-object>}\n</tool_call>")));
  EXPECT_EQ(system[1]["content"], "2+3?");
  const auto user = shown(R"([{"role":"user","content":"2+3?"}])", plan);
  EXPECT_THAT(user[0]["content"].get<std::string>(), AllOf(StartsWith("# Tools"), ::testing::EndsWith("\n\n2+3?")));
  EXPECT_THAT(shown(R"([{"role":"assistant","content":"x"}])", plan)[0]["content"].get<std::string>(), StartsWith("# Tools"));
}

TEST(ShownTools, AreToldWithTheFormInWhichCallsAreRead) {
  constexpr std::string_view kAsked = R"([{"role":"user","content":"x"}])";
  const auto text = [&](const ToolPlan& plan) { return shown(kAsked, plan)[0]["content"].get<std::string>(); };
  EXPECT_THAT(text(plan_of(ToolFormat::kLlama3Json)),
              HasSubstr(R"({"name": "<function-name>", "parameters": <args-json-object>})"));
  EXPECT_THAT(text(plan_of(ToolFormat::kMistral)), HasSubstr("[TOOL_CALLS] [{\"name\""));
  auto named = plan_of(ToolFormat::kHermes);
  named.choice = ToolChoice::kNamed;
  named.function = "add";
  named.only_arguments = true;
  EXPECT_THAT(text(named), AllOf(HasSubstr("Call the function add"), ::testing::Not(HasSubstr("<tool_call>"))));
}

TEST(ShownTools, CallsAndResultsBecomeWhatWasSaid) {
  constexpr std::string_view kTalk =
      R"([{"role":"user","content":"2+3?"},)"
      R"({"role":"assistant","content":"Well.","tool_calls":[{"id":"1","type":"function","function":{"name":"add","arguments":{"a":2}}},)"
      R"({"id":"2","type":"function","function":{"name":"sub"}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":"5"},{"role":"tool","tool_call_id":"2","content":"-1"},)"
      R"({"role":"assistant","content":"5"}])";
  auto plan = plan_of(ToolFormat::kHermes);
  const auto messages = shown(kTalk, plan);
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(
      messages[1],
      ordered_json::parse(
          R"({"role":"assistant","content":"Well.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":2}}\n</tool_call>\n<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call>"})"));
  EXPECT_EQ(messages[2],
            ordered_json::parse(
                R"({"role":"user","content":"<tool_response>\n5\n</tool_response>\n<tool_response>\n-1\n</tool_response>"})"));
  EXPECT_EQ(messages[3]["content"], "5");
  plan.calls_need_showing = false;
  EXPECT_EQ(shown(kTalk, plan)[2]["role"], "tool");
}

}  // namespace
}  // namespace choral::serve
