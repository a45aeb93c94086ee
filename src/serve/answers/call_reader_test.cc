// Each family's calls, whole and in every division into two pieces and into single bytes; and texts that are no calls.
#include "serve/answers/call_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "serve/answers/every_cut_test.h"
#include "serve/tools/tool_call_id.h"

namespace choral::serve {
namespace {

CallReader reader_of(ToolFormat format, Announce announce) {
  return CallReader({.format = format, .announce = announce, .make_id = counted_ids()});
}

std::string parse(const CallReader& reader, std::string_view text, AnswerEnd end = AnswerEnd::kOver) {
  return read_every_cut(reader, text, end);
}
std::string parse(ToolFormat format, std::string_view text, Announce announce = Announce::kEarly,
                  AnswerEnd end = AnswerEnd::kOver) {
  return parse(reader_of(format, announce), text, end);
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
    EXPECT_EQ(parse(f, "Hm. <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"long", announce, AnswerEnd::kCut),
              "[Hm.] id0:f({\"a\": \"long)");
    EXPECT_EQ(
        parse(f, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {",
              announce, AnswerEnd::kCut),
        "[] id0:f({}) id1:g({)");
    EXPECT_EQ(parse(ToolFormat::kLlama3Json, "{\"name\": \"f\", \"parameters\": {\"a", announce, AnswerEnd::kCut),
              "[] id0:f({\"a)");
    // What a free answer may have meant otherwise stays its text.
    for (const std::string text : {"a <tool_c", "<tool_call>{\"name\": \"ge", "<tool_call>{\"name\": \"f\", \"argu"})
      EXPECT_EQ(parse(f, text, announce, AnswerEnd::kCut), "[" + text + "]");
  }
}

TEST(CutCalls, WhereNothingElseMayStandTheirBeginningIsNoText) {
  for (const Announce announce : {Announce::kEarly, Announce::kWhole}) {
    const CallReader parser({.format = ToolFormat::kHermes, .announce = announce, .make_id = counted_ids(), .only_calls = true});
    for (const std::string text : {"<tool_c", "<tool_call>\n{\"name\": \"ge"})
      EXPECT_EQ(parse(parser, text, AnswerEnd::kCut), "[]");
    EXPECT_EQ(parse(parser, "<tool_call>\n{\"name\": \"f\", \"argu", AnswerEnd::kCut), "[] id0:f()");
    EXPECT_EQ(parse(parser, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool", AnswerEnd::kCut), "[] id0:f({})");
  }
}

TEST(CutCalls, SayThatTheyAreCut) {
  const ReadAnswer read = read_pieces(
      reader_of(ToolFormat::kHermes, Announce::kWhole),
      {"<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"g\",\"arguments\":{"}, AnswerEnd::kCut);
  ASSERT_EQ(read.calls.size(), 2u);
  EXPECT_FALSE(read.calls[0].cut);
  EXPECT_TRUE(read.calls[1].cut);
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
  const auto parser = [](Announce announce) {
    return CallReader({.announce = announce, .make_id = counted_ids(), .only_arguments_of = "f"});
  };
  for (const Announce announce : {Announce::kEarly, Announce::kWhole}) {
    EXPECT_EQ(parse(parser(announce), "{\"x\": [1, 2]}"), "[] id0:f({\"x\": [1, 2]})");
    EXPECT_EQ(parse(parser(announce), " {}"), "[] id0:f({})");
    EXPECT_EQ(parse(parser(announce), "text"), "[text]");
  }
  EXPECT_EQ(parse(parser(Announce::kWhole), "{\"x\": "), "[{\"x\": ]");
  EXPECT_EQ(parse(parser(Announce::kEarly), "{\"x\": "), "[] id0:f({\"x\": )");
  for (const Announce announce : {Announce::kEarly, Announce::kWhole}) {
    EXPECT_EQ(parse(parser(announce), "{\"x\": ", AnswerEnd::kCut), "[] id0:f({\"x\": )");
    EXPECT_EQ(parse(parser(announce), "\n", AnswerEnd::kCut), "[] id0:f()");
  }
}

TEST(CallStream, ContentComesAtOnceAndArgumentsAsTheyCome) {
  CallReader reader = reader_of(ToolFormat::kHermes, Announce::kEarly);
  ReadAnswer sum;
  const auto push = [&](std::string_view text) {
    AnswerEvents events;
    reader.push(text, events);
    sum.add(events);
  };
  push("Hello ");
  EXPECT_EQ(sum.content, "Hello");  // a call may take the space
  push("you <to");
  EXPECT_EQ(sum.content, "Hello you");
  push("ol_call>{\"name\": \"f\", \"argu");
  EXPECT_TRUE(sum.calls.empty());
  push("ments\": {\"a");
  ASSERT_EQ(sum.calls.size(), 1u);
  EXPECT_EQ(sum.calls[0].name, "f");
  EXPECT_EQ(sum.calls[0].arguments, "{\"a");
  push("\": 1}");
  EXPECT_EQ(sum.calls[0].arguments, "{\"a\": 1}");
}

TEST(CallStream, LongAndRepeatedTextsTakeLinearTime) {
  for (const CallMarks& marks : all_call_marks()) {
    for (const std::string unit : {" ",
                                   "<tool_call>",
                                   "<tool_call>{\"arguments\": \"",
                                   "[TOOL_CALLS]",
                                   "[TOOL_CALLS] [",
                                   "{\"name\":\"f\",\"arguments\":{}}",
                                   "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
                                   "<｜",
                                   "[",
                                   "{\"a\":",
                                   "```json\n",
                                   "\n\n",
                                   "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[",
                                   "<tool_call>{\"name\":\"f\",\"arguments\":{}}",
                                   "<tool_call><function=f><parameter=a>",
                                   "<tool_call>f\n<arg_key>k</arg_key><arg_value>",
                                   "[f(a='",
                                   "```tool_code\nf(a=[",
                                   "<|python_start|>[f(a='\\x",
                                   "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\":\""}) {
      for (const Announce announce : {Announce::kEarly, Announce::kWhole}) {
        std::string text;
        while (text.size() < 1 << 17) text += unit;
        CallReader reader = reader_of(marks.format, announce);
        AnswerEvents events;
        for (size_t i = 0; i < text.size(); i += 7) reader.push(std::string_view(text).substr(i, 7), events);
        reader.finish(AnswerEnd::kOver, events);
        EXPECT_LE(reader.calls(), 128u);
      }
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
