// Earlier turns for gpt-oss, through the part of its chat template that shows them.
#include "serve/openai/harmony_turns.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/chat_template.h"

namespace choral::serve {
namespace {

using nlohmann::json;

// What the family's template does with a conversation, without its system's message.
constexpr std::string_view kTemplate =
    R"({%- set last = namespace(name='') -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{%- if 'tool_calls' in m -%}
{%- set call = m.tool_calls[0].function -%}
{%- if m.content and m.thinking -%}{{ raise_exception('Cannot pass both') }}{%- endif -%}
{%- set said = m.content or m.thinking -%}
{%- if said -%}<analysis>{{ said }}</analysis>{%- endif -%}
<call {{ call.name }}>{{ call.arguments|tojson }}</call>
{%- set last.name = call.name -%}
{%- else -%}<final>{{ m.content }}</final>{%- endif -%}
{%- elif m.role == 'tool' -%}<result {{ last.name }}>{{ m.content }}</result>
{%- else -%}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{%- endif -%}
{%- endfor -%}{# message.thinking #})";

std::string shown(std::string_view messages) {
  const auto chat = text::ChatTemplate::parse(std::string(kTemplate));
  EXPECT_TRUE(chat.ok()) << chat.status().to_string();
  const std::string turns = harmony_turns(messages);
  text::ChatInput input;
  input.messages_json = turns;
  const auto prompt = chat->apply(input);
  return prompt.ok() ? *prompt : prompt.status().to_string();
}

std::string call(const std::string& id, const std::string& name) {
  return R"({"id":")" + id + R"(","type":"function","function":{"name":")" + name + R"(","arguments":{"a":1}}})";
}

TEST(HarmonyTurns, ThoughtsGoWithCalls) {
  EXPECT_EQ(shown(R"([{"role":"user","content":"q"},{"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[)" +
                  call("1", "f") + R"(]},{"role":"tool","tool_call_id":"1","content":"r"}])"),
            "<user>q</user><analysis>hm</analysis><call f>{\"a\": 1}</call><result f>r</result>");
  // The template has one place for what was thought and what was said.
  EXPECT_EQ(shown(R"([{"role":"assistant","content":"I look.","reasoning_content":"hm","tool_calls":[)" + call("1", "f") + "]}]"),
            "<analysis>hm\n\nI look.</analysis><call f>{\"a\": 1}</call>");
  EXPECT_EQ(shown(R"([{"role":"assistant","content":"I look.","tool_calls":[)" + call("1", "f") + "]}]"),
            "<analysis>I look.</analysis><call f>{\"a\": 1}</call>");
}

TEST(HarmonyTurns, EachCallHasItsResultBehindIt) {
  EXPECT_EQ(shown(R"([{"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[)" + call("1", "f") + "," +
                  call("2", "g") + "," + call("3", "h") +
                  R"(]},{"role":"tool","tool_call_id":"2","content":"rg"},{"role":"tool","tool_call_id":"1","content":"rf"},)"
                  R"({"role":"user","content":"and?"},{"role":"tool","tool_call_id":"3","content":"late"}])"),
            "<analysis>hm</analysis><call f>{\"a\": 1}</call><result f>rf</result><call g>{\"a\": 1}</call><result g>rg</result>"
            "<call h>{\"a\": 1}</call><user>and?</user><result h>late</result>");
}

TEST(HarmonyTurns, WhatHasNoCallsStays) {
  EXPECT_EQ(shown(R"([{"role":"system","content":"s"},{"role":"assistant","content":"a","tool_calls":[]},)"
                  R"({"role":"assistant","content":"b","tool_calls":null}])"),
            "<system>s</system><final>a</final><final>b</final>");
  const auto turns = json::parse(harmony_turns(R"([{"role":"assistant","content":"a","reasoning_content":"hm"}])"));
  EXPECT_EQ(turns, json::parse(R"([{"role":"assistant","content":"a","thinking":"hm"}])"));
  EXPECT_EQ(harmony_turns("[]"), "[]");
  EXPECT_TRUE(wants_harmony_turns(kTemplate));
  EXPECT_FALSE(wants_harmony_turns("{{ message.reasoning_content }}"));
}

}  // namespace
}  // namespace choral::serve
