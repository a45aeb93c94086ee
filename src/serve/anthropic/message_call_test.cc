#include "serve/anthropic/message_call.h"

#include <gmock/gmock.h>

#include "serve/anthropic/error_form.h"
#include "serve/openai/json.h"
#include "support/allocation_counter.h"

namespace choral::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<MessageCall> read(const std::string& members, BodyNotes& notes) {
  return read_message_call("{\"max_tokens\":9," + members + "}", {}, /*counts=*/false, notes);
}

// The chat's messages; where it is refused, what is wrong.
std::string chat_of(const std::string& members) {
  BodyNotes notes;
  const auto call = read(members, notes);
  if (!call.ok()) return call.status().message();
  EXPECT_THAT(notes.warnings, ElementsAre()) << members;
  return call->chat.request.messages_json;
}

std::string chat_of_messages(const std::string& messages) { return chat_of("\"messages\":[" + messages + "]"); }

TEST(ReadMessageCall, IsAChat) {
  EXPECT_EQ(chat_of(R"("system":"Be brief.","messages":[{"role":"user","content":"a"}])"),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"a"}])");
  EXPECT_EQ(chat_of(R"("system":[{"type":"text","text":"A.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"B."}],)"
                    R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])"),
            R"([{"role":"system","content":"A.\nB."},{"role":"user","content":"a\nb"}])");
}

TEST(ReadMessageCall, TurnsOfOneRoleAreOneTurn) {
  EXPECT_EQ(chat_of_messages(R"({"role":"user","content":"a"},{"role":"user","content":"b"})"),
            R"([{"role":"user","content":"a\nb"}])");
}

TEST(ReadMessageCall, CallsThoughtsAndResultsFindTheirPlaces) {
  EXPECT_EQ(
      chat_of_messages(
          R"({"role":"user","content":"w?"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},)"
          R"({"type":"redacted_thinking","data":"x"},{"type":"text","text":"so"},{"type":"tool_use","id":"c1","name":"f","input":{"x":1}},)"
          R"({"type":"tool_use","id":"c2","name":"g","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1",)"
          R"("content":[{"type":"text","text":"7"}]},{"type":"tool_result","tool_use_id":"c2","is_error":true,"content":"no"},)"
          R"({"type":"text","text":"and?"}]})"),
      R"([{"role":"user","content":"w?"},{"role":"assistant","content":"so","tool_calls":[)"
      R"({"id":"c1","type":"function","function":{"name":"f","arguments":{"x":1}}},)"
      R"({"id":"c2","type":"function","function":{"name":"g","arguments":{}}}],"reasoning_content":"t"},)"
      R"({"role":"tool","tool_call_id":"c1","content":"7"},{"role":"tool","tool_call_id":"c2","content":"Error:\nno"},)"
      R"({"role":"user","content":"and?"}])");
}

TEST(ReadMessageCall, GoesOnWithAnAssistantsLastText) {
  BodyNotes notes;
  const auto goes_on = [&](const std::string& last) {
    const auto call = read("\"messages\":[{\"role\":\"user\",\"content\":\"a\"}," + last + "]", notes);
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    return call.ok() && call->chat.request.continue_final_message;
  };
  EXPECT_TRUE(goes_on(R"({"role":"assistant","content":"The answer is ("})"));
  EXPECT_FALSE(goes_on(R"({"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]})"));
  EXPECT_FALSE(goes_on(R"({"role":"user","content":"b"})"));
}

TEST(ReadMessageCall, ClaudeCodesNumberOfTheRequestStaysOutOfThePrompt) {
  const std::string user = R"(,"messages":[{"role":"user","content":"a"}])";
  const std::string header = "x-anthropic-billing-header: cc_version=2; cch=abc;";
  EXPECT_EQ(chat_of("\"system\":[{\"type\":\"text\",\"text\":\"" + header + "\"},{\"type\":\"text\",\"text\":\"S\"}]" + user),
            R"([{"role":"system","content":"S"},{"role":"user","content":"a"}])");
  EXPECT_EQ(chat_of("\"system\":\"" + header + "\\nS\"" + user),
            R"([{"role":"system","content":"S"},{"role":"user","content":"a"}])");
  EXPECT_EQ(chat_of("\"system\":\"" + header + "\"" + user), R"([{"role":"user","content":"a"}])");
  EXPECT_THAT(chat_of("\"messages\":[{\"role\":\"user\",\"content\":\"" + header + "\"}]"), HasSubstr("cch=abc"));
}

TEST(ReadMessageCall, WhatCannotBeReadIsRefusedByItsPlace) {
  EXPECT_THAT(chat_of_messages(R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"image","source":{}}]})"),
              HasSubstr("'messages[0].content[1]' is a block of type 'image'"));
  EXPECT_THAT(
      chat_of_messages(R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"image"}]}]})"),
      HasSubstr("'messages[0].content[0].content[0]' is a block of type 'image'"));
  EXPECT_THAT(chat_of_messages(R"({"role":"user","content":[{"type":"document","source":{}}]})"), HasSubstr("'document'"));
  EXPECT_THAT(chat_of_messages(R"({"role":"user","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]})"),
              HasSubstr("'tool_use'"));
  EXPECT_THAT(chat_of_messages(R"({"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":"{}"}]})"),
              HasSubstr("'messages[0].content[0].input' must be an object"));
  EXPECT_THAT(chat_of_messages(R"({"role":"tool","content":"a"})"), HasSubstr("user, assistant or system"));
  EXPECT_THAT(chat_of_messages(R"({"role":"user","content":[]})"), HasSubstr("'messages[0].content' is empty"));
  EXPECT_THAT(chat_of_messages(R"({"role":"user"})"), HasSubstr("'messages[0].content' is missing"));
  EXPECT_THAT(chat_of_messages(""), HasSubstr("at least one message"));
  const std::string user = R"("messages":[{"role":"user","content":"a"}],)";
  EXPECT_THAT(chat_of(user + R"("tools":[{"type":"web_search_20250305","name":"web_search"}])"),
              HasSubstr("'tools[0]' is of type web_search_20250305"));
  EXPECT_THAT(chat_of(user + R"("tools":[{"name":"f"}])"), HasSubstr("'tools[0].input_schema' is missing"));
  EXPECT_THAT(chat_of(user + R"("mcp_servers":[{"name":"x"}])"), HasSubstr("'mcp_servers'"));
  EXPECT_THAT(chat_of(user + R"("container":"c")"), HasSubstr("'container'"));
  EXPECT_THAT(chat_of(user + R"("stop_sequences":"x")"), HasSubstr("'stop_sequences' must be an array"));
  EXPECT_THAT(chat_of(user + R"("tool_choice":{"type":"function"})"), HasSubstr("auto, any, tool or none"));
  EXPECT_THAT(chat_of(user + R"("tool_choice":"auto")"), HasSubstr("'tool_choice' must be an object"));
  EXPECT_THAT(chat_of(user + R"("thinking":{"type":"enabled"})"), HasSubstr("'thinking.budget_tokens' is missing"));
  EXPECT_THAT(chat_of(user + R"("thinking":{"type":"between_tools"})"), HasSubstr("'thinking.type'"));
  BodyNotes notes;
  EXPECT_FALSE(read_message_call(R"({"messages":[{"role":"user","content":"a"}]})", {}, /*counts=*/false, notes).ok());
  EXPECT_EQ(notes.param, "max_tokens");
  EXPECT_TRUE(read_message_call(R"({"messages":[{"role":"user","content":"a"}]})", {}, /*counts=*/true, notes).ok());
}

TEST(ReadMessageCall, ToolsAreFunctions) {
  const auto call_with = [](const std::string& members) {
    BodyNotes notes;
    auto call = read(R"("messages":[{"role":"user","content":"a"}],"tools":[{"name":"f","description":"d","type":"custom",)"
                     R"("input_schema":{"type":"object"},"strict":true,"cache_control":{"type":"ephemeral"}}])" +
                         members,
                     notes);
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    EXPECT_THAT(notes.warnings, ElementsAre());
    return call.ok() ? call->chat : ChatCall();
  };
  EXPECT_EQ(call_with("").request.tools_json,
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}])");
  EXPECT_EQ(call_with("").tool_choice_json, "");
  EXPECT_EQ(call_with(R"(,"tool_choice":{"type":"auto"})").tool_choice_json, R"("auto")");
  EXPECT_EQ(call_with(R"(,"tool_choice":{"type":"any"})").tool_choice_json, R"("required")");
  EXPECT_EQ(call_with(R"(,"tool_choice":{"type":"none"})").tool_choice_json, R"("none")");
  const ChatCall named = call_with(R"(,"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true})");
  EXPECT_EQ(named.tool_choice_json, R"({"type":"function","function":{"name":"f"}})");
  EXPECT_FALSE(named.parallel_tool_calls);
}

TEST(ReadMessageCall, SaysItsFieldsInAChatsWords) {
  BodyNotes notes;
  const auto call =
      read(R"("messages":[{"role":"user","content":"a"}],"model":"one","stop_sequences":["x","y"],"temperature":0.5,)"
           R"("top_p":0.9,"top_k":7,"stream":true,"metadata":{"user_id":"u"},"service_tier":"auto","seed":3,"lora":"two",)"
           R"("output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},)"
           R"("thinking":{"type":"disabled"})",
           notes);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_THAT(notes.warnings, ElementsAre());
  const Request& r = call->chat.request;
  EXPECT_EQ(call->chat.model, "one");
  EXPECT_TRUE(call->chat.stream);
  EXPECT_THAT(r.sampling.stop, ElementsAre("x", "y"));
  EXPECT_EQ(r.sampling.max_tokens, 9);
  EXPECT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_EQ(r.sampling.top_k, 7);
  EXPECT_EQ(r.sampling.seed, 3u);
  EXPECT_EQ(r.adapters.front().name, "two");
  EXPECT_EQ(r.structured_output.kind, StructuredOutput::Kind::kJsonSchema);
  const Json variables = Json::parse(r.template_kwargs_json);
  EXPECT_EQ(variables, Json::parse(R"({"reasoning_effort":"low","enable_thinking":false,"thinking":false})"));
}

TEST(ReadMessageCall, ThinkingIsTheTemplatesUnlessItIsSaid) {
  const auto variables = [](const std::string& members) {
    BodyNotes notes;
    const auto call = read(R"("messages":[{"role":"user","content":"a"}],)" + members, notes);
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    return call.ok() ? call->chat.request.template_kwargs_json : "";
  };
  EXPECT_EQ(variables(R"("thinking":{"type":"adaptive"})"), "");
  EXPECT_EQ(variables(R"("thinking":{"type":"enabled","budget_tokens":1024})"), R"({"enable_thinking":true,"thinking":true})");
  EXPECT_EQ(variables(R"("thinking":{"type":"enabled","budget_tokens":1024},"chat_template_kwargs":{"thinking":false})"),
            R"({"enable_thinking":true,"thinking":false})");
  BodyNotes notes;
  const auto omitted =
      read(R"("messages":[{"role":"user","content":"a"}],"thinking":{"type":"adaptive","display":"omitted"})", notes);
  ASSERT_TRUE(omitted.ok());
  EXPECT_FALSE(omitted->shows_thoughts);
}

TEST(ReadMessageCall, UnknownFieldsAreNamedWhereverTheyStand) {
  BodyNotes notes;
  ASSERT_TRUE(read(R"("messages":[{"role":"user","content":[{"type":"text","text":"a","made_up":1}]}],"max_token":1,)"
                   R"("tools":[{"name":"f","input_schema":{},"defer_loading":true}])",
                   notes)
                  .ok());
  EXPECT_THAT(notes.warnings, ElementsAre(HasSubstr("'messages[0].content[0].made_up'"),
                                          HasSubstr("'max_token' is not known and has no effect; did you mean 'max_tokens'?"),
                                          HasSubstr("'tools[0].defer_loading'")));
}

TEST(ReadMessageCall, NoSecondFormOfTheMessagesIsMade) {
  std::string objects = "{}";
  for (int i = 0; i < 20'000; ++i) objects += ",{}";
  const std::string input = "{\"x\":[" + objects + "]}";
  const auto chat = testing::count_allocations([&] {
    BodyNotes notes;
    const std::string function = "{\"name\":\"f\",\"arguments\":" + input + "}";
    EXPECT_TRUE(read_chat_call(R"({"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function",)"
                               "\"function\":" +
                                   function + "}]}]}",
                               {}, notes)
                    .ok());
  });
  const auto message = testing::count_allocations([&] {
    BodyNotes notes;
    EXPECT_TRUE(
        read(R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":)" + input + "}]}]",
             notes)
            .ok());
  });
  EXPECT_LT(message.bytes, 11 * chat.bytes / 10) << "of " << chat.bytes;
}

TEST(MessageSchemas, AreJson) {
  for (const auto& schema : {message_schema(), message_count_schema()})
    EXPECT_EQ(Json::parse(schema, nullptr, false)["type"], "object") << schema;
}

TEST(AnthropicErrors, HaveItsShape) {
  EXPECT_EQ(anthropic_error_body({404, "no such model", "model_not_found", "model"}, "r1"),
            R"({"type":"error","error":{"type":"not_found_error","message":"no such model"},"request_id":"r1"})");
  EXPECT_EQ(anthropic_error_type(503), "overloaded_error");
  EXPECT_EQ(anthropic_error_type(500), "api_error");
  EXPECT_EQ(anthropic_error_type(413), "invalid_request_error");
}

}  // namespace
}  // namespace choral::serve
