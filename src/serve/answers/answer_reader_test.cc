// Thoughts of each family with what follows them, in every division; gpt-oss's channels; what is counted as thought.
#include "serve/answers/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/answers/every_cut_test.h"
#include "serve/answers/reasoning_tokens.h"

namespace choral::serve {
namespace {

AnswerReader thinking_reader(std::string_view thoughts, std::string_view prompt_end = "", ToolFormat format = ToolFormat::kHermes,
                             Announce announce = Announce::kEarly, bool reads_calls = true) {
  AnswerReading reading{.thoughts = *thought_marks_named(thoughts), .prompt_end = std::string(prompt_end)};
  reading.reads_calls = reads_calls;
  reading.calls.format = format;
  reading.calls.announce = announce;
  reading.calls.make_id = counted_ids();
  return AnswerReader(std::move(reading));
}
void expect_thoughts(std::string_view thoughts, std::string_view text, std::string_view wanted, std::string_view prompt_end = "",
                     ToolFormat format = ToolFormat::kHermes) {
  for (const Announce announce : {Announce::kEarly, Announce::kWhole})
    EXPECT_EQ(read_every_cut(thinking_reader(thoughts, prompt_end, format, announce), text), wanted) << thoughts << ": " << text;
}

TEST(Thoughts, OfEveryFamilyByItsMarks) {
  for (const ThoughtMarks& marks : all_thought_marks()) {
    if (marks.is_harmony) continue;
    for (const std::string_view begin : marks.begins) {
      for (const std::string_view end : marks.ends) {
        if (begin.empty() || end.empty()) continue;
        const std::string text = std::string(begin) + "\nIt is 2 < 3.\n\n" + std::string(end) + "\n\nYes.\n";
        expect_thoughts(marks.name, text, "{It is 2 < 3.}[Yes.\n]");
        expect_thoughts(marks.name, "\n" + text, "{It is 2 < 3.}[Yes.\n]");
        // The prompt opened them; the model may say the mark again.
        expect_thoughts(marks.name, text, "{It is 2 < 3.}[Yes.\n]", std::string(begin) + "\n");
        expect_thoughts(marks.name, text.substr(begin.size()), "{It is 2 < 3.}[Yes.\n]",
                        "assistant\n" + std::string(begin) + "\n");
        // It did not, or closed them.
        const std::string rest = text.substr(begin.size());
        expect_thoughts(marks.name, rest, "[" + rest + "]", "assistant\n");
        expect_thoughts(marks.name, "Yes.", "[Yes.]", std::string(begin) + "\n\n" + std::string(end) + "\n\n");
      }
    }
  }
}

TEST(Thoughts, ThatAreEmptyOrNeverEnd) {
  expect_thoughts("qwen3", "<think>\n\n</think>\n\nHi", "[Hi]");
  expect_thoughts("qwen3", "<think></think>", "[]");
  expect_thoughts("qwen3", "<think>\nand so on </thin", "{and so on </thin}[]");
  expect_thoughts("qwen3", "and so on\n", "{and so on}[]", "<think>\n");
  expect_thoughts("qwen3", "<thi", "[<thi]");
  expect_thoughts("qwen3", " <", "[ <]");
  expect_thoughts("qwen3", "", "[]");
  expect_thoughts("qwen3", "\n ", "[\n ]");
  const std::string spaces(600, ' ');
  expect_thoughts("qwen3", "<think>" + spaces + "a" + spaces + "</think>" + spaces + "b", "{a" + spaces.substr(0, 88) + "}[b]");
  expect_thoughts("qwen3", spaces + "<think>a</think>", "[" + spaces + "<think>a</think>]");
}

TEST(Thoughts, MayHoldAnyMark) {
  const std::string call = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
  expect_thoughts("qwen3", "<think>I could " + call + " <think> now</think>\n" + call,
                  "{I could " + call + " <think> now}[] id0:f({})");
  // Only the first are thoughts; later marks are text, and so are those in a call's arguments.
  expect_thoughts("qwen3", "<think>a</think>b<think>c</think>", "{a}[b<think>c</think>]");
  expect_thoughts("qwen3", "Well <think>c</think>", "[Well <think>c</think>]");
  expect_thoughts("qwen3", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"<think></think>\"}}</tool_call>",
                  "[] id0:f({\"a\":\"<think></think>\"})");
}

TEST(Thoughts, EndWithKimisCalls) {
  expect_thoughts("kimi_k2",
                  "<think>I call.\n<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
                  "<|tool_call_end|><|tool_calls_section_end|>",
                  "{I call.}[] functions.f:0:f({})", "", ToolFormat::kKimiK2);
  const auto reader = thinking_reader("kimi_k2", "", ToolFormat::kKimiK2, Announce::kEarly, false);
  EXPECT_EQ(read_every_cut(reader, "<think>a <|tool_calls_section_begin|>b"), "{a}[<|tool_calls_section_begin|>b]");
}

TEST(Thoughts, ComeAtOnce) {
  AnswerReader reader = thinking_reader("qwen3");
  ReadAnswer sum;
  const auto push = [&](std::string_view text) {
    AnswerEvents events;
    reader.push(text, events);
    sum.add(events);
  };
  push("<think>");
  push("\nHm");
  EXPECT_EQ(sum.reasoning, "Hm");
  push(", so");
  EXPECT_EQ(sum.reasoning, "Hm, so");
  push("</think>");
  push("\n\nYes");
  EXPECT_EQ(sum.content, "Yes");
}

TEST(Harmony, ChannelsAndCalls) {
  const std::string thought = "<|channel|>analysis<|message|>Need <b>weather</b>.<|end|>";
  const std::string call =
      "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"<|end|>\"}";
  const auto expect = [](std::string_view text, std::string_view wanted, std::string_view prompt_end = "<|start|>assistant") {
    expect_thoughts("openai_gptoss", text, wanted, prompt_end, ToolFormat::kOpenAI);
  };
  expect(thought + "<|start|>assistant<|channel|>final<|message|>It rains.", "{Need <b>weather</b>.}[It rains.]");
  expect(thought + "<|start|>assistant<|channel|>final<|message|>It rains.<|return|>", "{Need <b>weather</b>.}[It rains.]");
  expect(thought + call, "{Need <b>weather</b>.}[] id0:get_weather({\"city\": \"<|end|>\"})");
  expect(thought + call + "<|call|>", "{Need <b>weather</b>.}[] id0:get_weather({\"city\": \"<|end|>\"})");
  // Said before a call; the recipient in the role; two calls.
  expect(thought + "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>" + call +
             "<|call|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
         "{Need <b>weather</b>.}[I look.] id0:get_weather({\"city\": \"<|end|>\"}) id1:now({})");
  expect(" to=functions.now<|channel|>commentary json<|message|>{}", "[] id0:now({})");
  // Whom the model takes to be there.
  expect("<|channel|>commentary to=browser.search<|message|>{\"q\": 1}<|call|>", "{{\"q\": 1}}[]");
  expect("<|channel|>analysis to=python<|message|>1+1<|call|>", "{1+1}[]");
  // The end of a message is missing; what the prompt began.
  expect("<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b", "{a}[b]");
  expect("<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "{a}[b]");
  expect("a<|end|><|start|>assistant<|channel|>final<|message|>b", "{a}[b]", "<|channel|>analysis<|message|>");
  expect("b<|return|>", "[b]", "<|start|>assistant<|channel|>final<|message|>");
  // Without headers, without an end, and what is no header.
  expect("Plain < text", "[Plain < text]");
  expect(" toes", "[ toes]");
  expect("<|channel|>analysis<|message|>never", "{never}[]");
  expect("<|channel|>anal", "[]");
  expect(thought + "<|st", "{Need <b>weather</b>.}[<|st]");
  const std::string endless = "<|channel|>" + std::string(600, 'x');
  expect(endless, "[" + endless + "]");
  // Not the arguments of a function.
  expect("<|channel|>commentary to=functions.f<|message|>text<|call|>", "[text]");
}

TEST(Harmony, CallsThatBreakOff) {
  const std::string cut = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": [1";
  const auto read = [&](Announce announce, AnswerEnd end) {
    return read_every_cut(thinking_reader("openai_gptoss", "", ToolFormat::kOpenAI, announce), cut, end);
  };
  EXPECT_EQ(read(Announce::kEarly, AnswerEnd::kOver), "[] id0:f({\"a\": [1)");
  EXPECT_EQ(read(Announce::kWhole, AnswerEnd::kOver), "[{\"a\": [1]");
  EXPECT_EQ(read(Announce::kEarly, AnswerEnd::kCut), "[] id0:f({\"a\": [1)");
  EXPECT_EQ(read(Announce::kWhole, AnswerEnd::kCut), "[] id0:f({\"a\": [1)");
}

TEST(Harmony, WithoutCallsOrThoughtsTheyAreContent) {
  const std::string text =
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>";
  EXPECT_EQ(read_every_cut(thinking_reader("openai_gptoss", "", ToolFormat::kOpenAI, Announce::kEarly, false), text), "{a}[{}]");
  EXPECT_EQ(read_every_cut(thinking_reader("none", "", ToolFormat::kOpenAI), text), "[a] id0:f({})");
}

TEST(NoThoughts, TheTextIsContent) {
  EXPECT_EQ(read_every_cut(thinking_reader("none"), "<think>a</think>b"), "[<think>a</think>b]");
  EXPECT_EQ(read_every_cut(AnswerReader({}), "<tool_call>{}"), "[<tool_call>{}]");
}

int64_t count_thoughts(std::string_view thoughts, std::string_view prompt_end, std::initializer_list<std::string_view> tokens) {
  ReasoningTokens counter(AnswerReader({.thoughts = *thought_marks_named(thoughts), .prompt_end = std::string(prompt_end)}));
  for (const auto token : tokens) counter.push(token);
  return counter.count();
}

TEST(ReasoningTokens, AreThoseOfThoughtsAndTheirMarks) {
  EXPECT_EQ(count_thoughts("qwen3", "", {"\n", "<think>", "\n", "a", " b", "</think>", "\n\n", "c", "d"}), 6);
  EXPECT_EQ(count_thoughts("qwen3", "<think>\n", {"a", " b", "</think>", "c"}), 3);
  EXPECT_EQ(count_thoughts("qwen3", "<think>\n", {"a", " b"}), 2);
  EXPECT_EQ(count_thoughts("qwen3", "", {"a", " b", "</think>", "c"}), 0);
  EXPECT_EQ(count_thoughts("qwen3", "", {"<", "thi", "nk>", "a", "</th", "ink>", "c"}), 6);
  EXPECT_EQ(count_thoughts("none", "", {"<think>", "a", "</think>"}), 0);
  EXPECT_EQ(count_thoughts("openai_gptoss", "<|start|>assistant",
                           {"<|channel|>", "analysis", "<|message|>", "a", "b", "<|end|>", "<|start|>", "assistant",
                            "<|channel|>", "final", "<|message|>", "c"}),
            6);
}

TEST(Thoughts, LongAndRepeatedTextsTakeLinearTime) {
  for (const ThoughtMarks& marks : all_thought_marks()) {
    for (const std::string_view unit :
         {"<think>", "</think", "<", " ", "\n<thin", "<|channel|>", "<|start|>x<|message|>", "<|channel|>analysis<|message|>",
          "<|channel|>commentary to=functions.f<|message|>{\"a\":", "Here is my ", "[THINK]"}) {
      std::string text;
      while (text.size() < 1 << 17) text += unit;
      AnswerReader reader = thinking_reader(marks.name, "", ToolFormat::kOpenAI, Announce::kWhole);
      AnswerEvents events;
      for (size_t i = 0; i < text.size(); i += 5) reader.push(std::string_view(text).substr(i, 5), events);
      reader.finish(AnswerEnd::kOver, events);
      EXPECT_LE(reader.calls(), 128u);
    }
  }
}

}  // namespace
}  // namespace choral::serve
