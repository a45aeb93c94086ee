// Each family's calls, whole and in every division into two pieces and into single bytes; and texts that are no calls.
#include "serve/tools/tool_call_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "serve/tools/tool_call_id.h"

namespace choral::serve {
namespace {

using testing::HasSubstr;
using Announce = ToolCallParser::Announce;
using End = ToolCallParser::End;

std::function<std::string()> counted_ids() {
  return [next = 0]() mutable { return "id" + std::to_string(next++); };
}

// What a client that adds up the stream has in the end; the rules of the stream are checked on the way.
struct Streamed {
  std::string content;
  std::vector<ToolCall> calls;
};
Streamed stream(ToolCallParser parser, const std::vector<std::string_view>& pieces, End end) {
  Streamed out;
  const auto add = [&out](AnswerDelta delta) {
    out.content += delta.content;
    for (ToolCallDelta& call : delta.calls) {
      if (call.index == out.calls.size()) {
        EXPECT_FALSE(call.id.empty() || call.name.empty());
        out.calls.push_back({call.id, call.name, ""});
      } else {
        EXPECT_EQ(call.index + 1, out.calls.size());
        EXPECT_TRUE(call.id.empty() && call.name.empty());
        EXPECT_FALSE(call.arguments.empty());
      }
      out.calls.back().arguments += call.arguments;
    }
  };
  for (const std::string_view piece : pieces) {
    AnswerDelta delta;
    parser.push(piece, delta);
    add(std::move(delta));
  }
  AnswerDelta last;
  parser.finish(end, last);
  add(std::move(last));
  return out;
}

std::string show(const std::string& content, const std::vector<ToolCall>& calls) {
  std::string text = "[" + content + "]";
  for (const ToolCall& call : calls) text += " " + call.id + ":" + call.name + "(" + call.arguments + ")";
  return text;
}

// Every division gives the same; that one is returned.
std::string parse(const ToolCallParser& parser, std::string_view text, End end = End::kOver) {
  const ParsedAnswer whole = parse_tool_calls(parser, text, end);
  const std::string expected = show(whole.content, whole.calls);
  std::vector<std::string_view> bytes;
  for (size_t cut = 0; cut < text.size(); ++cut) {
    const Streamed two = stream(parser, {text.substr(0, cut), text.substr(cut)}, end);
    EXPECT_EQ(show(two.content, two.calls), expected) << "cut at " << cut;
    bytes.push_back(text.substr(cut, 1));
  }
  const Streamed single = stream(parser, bytes, end);
  EXPECT_EQ(show(single.content, single.calls), expected);
  return expected;
}
std::string parse(ToolFormat format, std::string_view text, Announce announce = Announce::kEarly, End end = End::kOver) {
  return parse(ToolCallParser(format, announce, counted_ids()), text, end);
}
// Both ways of announcing agree where nothing breaks off.
void expect(ToolFormat format, std::string_view text, std::string_view wanted) {
  EXPECT_EQ(parse(format, text, Announce::kEarly), wanted) << text;
  EXPECT_EQ(parse(format, text, Announce::kWhole), wanted) << text;
}

TEST(HermesCalls, OneSeveralAndWithText) {
  const auto f = ToolFormat::kHermes;
  expect(
      f,
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"n\": [1, {\"a\": null}]}}\n</tool_call>",
      "[] id0:get_weather({\"city\": \"Paris\", \"n\": [1, {\"a\": null}]})");
  expect(f,
         "Let me "
         "see.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</"
         "tool_call>\n<tool_call>\n{\"name\":\"g\",\"arguments\":{\"x\":1}}\n</tool_call>\nDone.",
         "[Let me see.\nDone.] id0:f({}) id1:g({\"x\":1})");
  expect(f, "<tool_call>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]</tool_call>",
         "[] id0:f({\"a\": 1}) id1:g({})");
  // Keys in another order, further keys, arguments as a string, none, null, "parameters".
  expect(f, "<tool_call>{\"id\": 7, \"arguments\": {\"a\": \"</tool_call>\"}, \"name\": \"f\"}</tool_call>",
         "[] id0:f({\"a\": \"</tool_call>\"})");
  expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e9\\\"}\"}</tool_call>",
         "[] id0:f({\"a\": \"é\"})");
  expect(f, "<tool_call>{\"name\": \"f\"}</tool_call>", "[] id0:f({})");
  expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "[] id0:f({})");
  expect(f, "<tool_call>{\"name\": \"a.b-c_1\", \"parameters\": {\"x\": \"}\"}}</tool_call>", "[] id0:a.b-c_1({\"x\": \"}\"})");
  // The end marker is missing: the model stopped, or began the next.
  expect(f, "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "[] id0:f({})");
  expect(f, "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n", "[\n] id0:f({})");
  expect(f, "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n<tool_call>{\"name\":\"g\",\"arguments\":{}}",
         "[] id0:f({}) id1:g({})");
}

TEST(HermesCalls, WhatIsNoCallIsContent) {
  const auto f = ToolFormat::kHermes;
  for (const std::string text :
       {"plain", "a < b <tool", "<tool_call>", "<tool_call>oops</tool_call>", "<tool_call>{\"nam",
        "<tool_call>{\"name\": 7}</tool_call>", "<tool_call>{\"name\": \"\"}</tool_call>",
        "<tool_call>{\"name\": \"a b\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"no json\"}</tool_call>", "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>[]</tool_call>", "<tool_call>{\"name\": \"f\", \"name\": \"g\"}</tool_call>", "  <tool_call> {bad} ",
        "{\"name\": \"f\", \"arguments\": {}}", "<tool_call>\xff\xfe"}) {
    expect(f, text, "[" + text + "]");
  }
  // A real call behind a broken one.
  expect(f, "<tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "[<tool_call>] id0:f({})");
}

TEST(HermesCalls, ACallThatBreaksOff) {
  const auto f = ToolFormat::kHermes;
  const std::string cut = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"long";
  EXPECT_EQ(parse(f, cut, Announce::kWhole), "[" + cut + "]");
  EXPECT_EQ(parse(f, cut, Announce::kEarly), "[] id0:f({\"a\": \"long)");
  const std::string broken = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": oops}}</tool_call> text";
  EXPECT_EQ(parse(f, broken, Announce::kWhole), "[" + broken + "]");
  EXPECT_EQ(parse(f, broken, Announce::kEarly), "[oops}}</tool_call> text] id0:f({\"a\": )");
}

TEST(CutCalls, AreCallsWithTheArgumentsTheyHave) {
  const auto f = ToolFormat::kHermes;
  for (const Announce announce : {Announce::kEarly, Announce::kWhole}) {
    EXPECT_EQ(parse(f, "Hm. <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"long", announce, End::kCut),
              "[Hm.] id0:f({\"a\": \"long)");
    EXPECT_EQ(
        parse(f, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {",
              announce, End::kCut),
        "[] id0:f({}) id1:g({)");
    EXPECT_EQ(parse(ToolFormat::kLlama3Json, "{\"name\": \"f\", \"parameters\": {\"a", announce, End::kCut), "[] id0:f({\"a)");
    // What a free answer may have meant otherwise stays its text.
    for (const std::string text : {"a <tool_c", "<tool_call>{\"name\": \"ge", "<tool_call>{\"name\": \"f\", \"argu"})
      EXPECT_EQ(parse(f, text, announce, End::kCut), "[" + text + "]");
  }
}

TEST(CutCalls, WhereNothingElseMayStandTheirBeginningIsNoText) {
  for (const Announce announce : {Announce::kEarly, Announce::kWhole}) {
    ToolCallParser parser(ToolFormat::kHermes, announce, counted_ids());
    parser.expect_only_calls();
    for (const std::string text : {"<tool_c", "<tool_call>\n{\"name\": \"ge"}) EXPECT_EQ(parse(parser, text, End::kCut), "[]");
    EXPECT_EQ(parse(parser, "<tool_call>\n{\"name\": \"f\", \"argu", End::kCut), "[] id0:f()");
    EXPECT_EQ(parse(parser, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool", End::kCut), "[] id0:f({})");
  }
}

TEST(CutCalls, SayThatTheyAreCut) {
  ToolCallParser parser(ToolFormat::kHermes, Announce::kWhole, counted_ids());
  AnswerDelta delta;
  parser.push("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"g\",\"arguments\":{", delta);
  parser.finish(End::kCut, delta);
  ASSERT_EQ(delta.calls.size(), 2u);
  EXPECT_FALSE(delta.calls[0].cut);
  EXPECT_TRUE(delta.calls[1].cut);
}

TEST(Llama3Calls, BareJsonAndPythonTag) {
  const auto f = ToolFormat::kLlama3Json;
  expect(f, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", "[] id0:f({\"x\": 1})");
  expect(f, " \n<|python_tag|>{\"name\": \"f\", \"parameters\": {\"x\": 1}}", "[] id0:f({\"x\": 1})");
  expect(f, "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"a\": 2}}",
         "[] id0:f({}) id1:g({\"a\": 2})");
  expect(f, "{\"name\": \"f\", \"arguments\": {}} text", "[ text] id0:f({})");
  // JSON that is an answer, not a call.
  for (const std::string text :
       {"{\"name\": \"Bob\"}", "{\"name\": \"Bob\", \"age\": 7}", "{\"answer\": {\"name\": \"f\", \"parameters\": {}}}",
        "{\"name\": \"f\", \"parameters\": 3}", "{}", "{", "text {\"name\": \"f\", \"parameters\": {}}",
        "<|python_tag|>brave_search.call(query=\"x\")", "<|python"}) {
    expect(f, text, "[" + text + "]");
  }
  expect(f, "{\"name\": \"f\", \"parameters\": {}}; no", "[; no] id0:f({})");
}

TEST(MistralCalls, ArrayAndNamedForms) {
  const auto f = ToolFormat::kMistral;
  expect(f,
         "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}, \"id\": \"123456789\"}, {\"name\": \"g\", "
         "\"arguments\": {}}]",
         "[] id0:f({\"a\": \"]\"}) id1:g({})");
  expect(f, "Hm. [TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", "[Hm.] id0:f({})");
  expect(f, "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g{}", "[] id0:f({\"a\": 1}) id1:g({})");
  expect(f, "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"a\": 1}", "[] id0:f({\"a\": 1})");
  expect(f, " [{\"name\": \"f\", \"arguments\": {}}]", "[] id0:f({})");
  for (const std::string text :
       {"[TOOL_CALLS]", "[TOOL_CALLS] none", "[TOOL_CALLS] [1, 2]", "[1, 2]", "[{\"a\": 1}]", "[TOOL", "[TOOL_CALLS]f[ARGS]x"}) {
    expect(f, text, "[" + text + "]");
  }
  expect(f, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, oops]", "[, oops]] id0:f({})");
}

TEST(DeepSeekCalls, BothForms) {
  const auto f = ToolFormat::kDeepSeekV3;
  expect(f,
         "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
         "\"```\"}\n```<｜tool▁call▁end｜>\n"
         "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         "[I look.] id0:f({\"a\": \"```\"}) id1:g({})");
  expect(f,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
         "1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}"
         "<｜tool▁call▁end｜><｜tool▁calls▁end｜> end",
         "[ end] id0:f({\"a\": 1}) id1:g({})");
  expect(f, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n{}", "[] id0:f({})");
  for (const std::string text : {"<｜tool▁calls▁begin｜>", "<｜tool▁calls", "<｜tool▁calls▁begin｜>text",
                                 "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function",
                                 "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>a b\n```json\n{}"}) {
    expect(f, text, "[" + text + "]");
  }
}

TEST(JsonCalls, BareFencedAndArrays) {
  const auto f = ToolFormat::kJson;
  expect(f, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "[] id0:f({\"a\": 1})");
  expect(f, "[{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"g\", \"parameters\": {\"b\": 2}}]",
         "[] id0:f({}) id1:g({\"b\": 2})");
  expect(f, "```json\n{\"name\": \"f\", \"arguments\": {}}\n```\n", "[\n] id0:f({})");
  expect(f, "```tool_call\n[{\"name\": \"f\", \"arguments\": {}}]\n```", "[] id0:f({})");
  for (const std::string text : {"[1, 2, 3]", "{\"a\": 1}", "```python\nprint()\n```", "```json\n{\"a\": 1}\n```", "``", "text",
                                 "", " ", "{\"name\": \"Bob\"}"}) {
    expect(f, text, "[" + text + "]");
  }
}

TEST(NamedCalls, TheWholeAnswerIsArguments) {
  const auto parser = [](Announce announce) { return ToolCallParser::of_arguments("f", announce, counted_ids()); };
  for (const Announce announce : {Announce::kEarly, Announce::kWhole}) {
    EXPECT_EQ(parse(parser(announce), "{\"x\": [1, 2]}"), "[] id0:f({\"x\": [1, 2]})");
    EXPECT_EQ(parse(parser(announce), " {}"), "[] id0:f({})");
    EXPECT_EQ(parse(parser(announce), "text"), "[text]");
  }
  EXPECT_EQ(parse(parser(Announce::kWhole), "{\"x\": "), "[{\"x\": ]");
  EXPECT_EQ(parse(parser(Announce::kEarly), "{\"x\": "), "[] id0:f({\"x\": )");
  for (const Announce announce : {Announce::kEarly, Announce::kWhole}) {
    EXPECT_EQ(parse(parser(announce), "{\"x\": ", End::kCut), "[] id0:f({\"x\": )");
    EXPECT_EQ(parse(parser(announce), "\n", End::kCut), "[] id0:f()");
  }
}

TEST(ToolCallStream, ContentComesAtOnceAndArgumentsAsTheyCome) {
  ToolCallParser parser(ToolFormat::kHermes, Announce::kEarly, counted_ids());
  AnswerDelta delta;
  parser.push("Hello ", delta);
  EXPECT_EQ(delta.content, "Hello");  // a call may take the space
  parser.push("you <to", delta);
  EXPECT_EQ(delta.content, "Hello you");
  parser.push("ol_call>{\"name\": \"f\", \"argu", delta);
  EXPECT_TRUE(delta.calls.empty());
  parser.push("ments\": {\"a", delta);
  ASSERT_EQ(delta.calls.size(), 1u);
  EXPECT_EQ(delta.calls[0].name, "f");
  EXPECT_EQ(delta.calls[0].arguments, "{\"a");
  delta = {};
  parser.push("\": 1}", delta);
  EXPECT_EQ(delta.calls.at(0).arguments, "\": 1}");
  EXPECT_TRUE(delta.calls.at(0).name.empty());
}

TEST(ToolCallStream, LongAndRepeatedTextsTakeLinearTime) {
  for (const ToolFormat f :
       {ToolFormat::kHermes, ToolFormat::kLlama3Json, ToolFormat::kMistral, ToolFormat::kDeepSeekV3, ToolFormat::kJson}) {
    for (const std::string unit :
         {" ", "<tool_call>", "<tool_call>{\"arguments\": \"", "[TOOL_CALLS]", "[TOOL_CALLS] [",
          "{\"name\":\"f\",\"arguments\":{}}", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "<｜", "[", "{\"a\":", "```json\n",
          "\n\n", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[", "<tool_call>{\"name\":\"f\",\"arguments\":{}}"}) {
      std::string text;
      while (text.size() < 1 << 20) text += unit;
      ToolCallParser parser(f, Announce::kEarly, counted_ids());
      AnswerDelta delta;
      for (size_t i = 0; i < text.size(); i += 7) parser.push(std::string_view(text).substr(i, 7), delta);
      parser.finish(End::kOver, delta);
      EXPECT_LE(parser.calls(), 128u);
    }
  }
}

TEST(ToolCallId, HasTheFormOfItsFamily) {
  std::mt19937_64 generator(1);
  const std::string id = make_tool_call_id(ToolFormat::kHermes, generator);
  EXPECT_THAT(id, testing::MatchesRegex("call_[a-zA-Z0-9]{24}"));
  EXPECT_NE(make_tool_call_id(ToolFormat::kHermes, generator), id);
  EXPECT_THAT(make_tool_call_id(ToolFormat::kMistral, generator), testing::MatchesRegex("[a-zA-Z0-9]{9}"));
}

}  // namespace
}  // namespace choral::serve
