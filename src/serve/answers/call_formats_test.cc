// Calls as each family of models writes them, in every division, told early and when they are whole; and what is no call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/answers/call_reader.h"
#include "serve/answers/every_cut_test.h"

namespace choral::serve {
namespace {

constexpr std::string_view kWeatherTools =
    R"([{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{
      "city":{"type":"string"},"days":{"type":"integer"},"metric":{"type":"boolean"},"at":{"type":"object"},
      "zip":{"type":["string","null"]},"unit":{"enum":["C","F"]},"hours":{"type":"array","items":{"type":"integer"}},
      "note":{"anyOf":[{"type":"string"},{"type":"integer"}]}}}}}])";

CallReader weather_reader(ToolFormat format, Announce announce) {
  static const auto types = std::make_shared<const ParameterTypes>(ParameterTypes::of_tools(kWeatherTools));
  return CallReader({.format = format, .announce = announce, .make_id = counted_ids(), .types = types});
}

void expect_calls(ToolFormat format, std::string_view text, std::string_view wanted) {
  for (const Announce announce : {Announce::kEarly, Announce::kWhole})
    EXPECT_EQ(read_every_cut(weather_reader(format, announce), text), wanted) << text;
}
void expect_content(ToolFormat format, std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) expect_calls(format, text, "[" + text + "]");
}
// A text that ends in a call: as it is told early, and whole; and where there was no room for the rest.
void expect_broken(ToolFormat format, const std::string& text, std::string_view early, std::string_view cut) {
  EXPECT_EQ(read_every_cut(weather_reader(format, Announce::kEarly), text), early);
  EXPECT_EQ(read_every_cut(weather_reader(format, Announce::kWhole), text), "[" + text + "]");
  for (const Announce announce : {Announce::kEarly, Announce::kWhole})
    EXPECT_EQ(read_every_cut(weather_reader(format, announce), text, AnswerEnd::kCut), cut);
}

TEST(Qwen3CoderCalls, ParametersBecomeJsonByTheSchema) {
  const auto f = ToolFormat::kQwen3Coder;
  expect_calls(f,
               "I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nSan \"F\"\n</parameter>\n<parameter=days>\n3\n"
               "</parameter>\n<parameter=metric>\nTrue\n</parameter>\n<parameter=at>\n{\"lat\": 1.5}\n</parameter>\n</function>\n"
               "</tool_call>",
               R"([I look.] id0:get_weather({"city": "San \"F\"", "days": 3, "metric": true, "at": {"lat": 1.5}}))");
  // A string stays one, whatever it looks like; a line's end at each side is the form's, further ones are the value's.
  expect_calls(f, "<tool_call>\n<function=get_weather>\n<parameter=city>\n\n 12\t\n\n</parameter>\n</function>\n</tool_call>",
               R"([] id0:get_weather({"city": "\n 12\t\n"}))");
  expect_calls(f, "<tool_call><function=get_weather><parameter=unit>null</parameter></function></tool_call>",
               R"([] id0:get_weather({"unit": "null"}))");
  // Marks in values, lists as Python writes them, what may be null, what is no number, what nobody described.
  expect_calls(
      f,
      "<tool_call>\n<function=get_weather>\n<parameter=city>\n<b></param>\n</parameters>\n</parameter>\n"
      "<parameter=hours>\n[1, 'x', None]\n</parameter>\n<parameter=zip>\nnull\n</parameter>\n<parameter=days>\nthree\n"
      "</parameter>\n<parameter=other>\nfree text\n</parameter>\n</function>\n</tool_call>",
      R"([] id0:get_weather({"city": "<b></param>\n</parameters>", "hours": [1, "x", null], "zip": null, "days": "three", )"
      R"("other": "free text"}))");
  // No parameters; two calls, with and without the outer mark; JSON behind it, as a constraint writes it.
  expect_calls(f, "<tool_call>\n<function=now>\n</function>\n</tool_call>", "[] id0:now({})");
  expect_calls(f, "<function=now></function>\n<function=now></function></tool_call>", "[] id0:now({}) id1:now({})");
  expect_calls(f,
               "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=a.b>\n</function>\n</tool_call>",
               "[] id0:now({}) id1:a.b({})");
  expect_calls(f, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "[] id0:f({\"a\": 1})");
  expect_calls(f,
               "<function=now>\xff</function><function=get_weather><parameter=city>\xff\xc3\xa9\xe2\x82</parameter></function>",
               "[<function=now>\xff</function>] id0:get_weather({\"city\": \"\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD\"})");
  expect_calls(f, "<tool_call>[<function=f></function>", "[<tool_call>[] id0:f({})");
}

TEST(Qwen3CoderCalls, WhatIsNoCallIsContent) {
  expect_content(ToolFormat::kQwen3Coder, {"<function=", "<function=a b>", "<tool_call>\n<function", "<tool_call>text",
                                           "a <funct b", "<function=f", "<function=>"});
}

TEST(Qwen3CoderCalls, ThatBreakOff) {
  expect_broken(ToolFormat::kQwen3Coder, "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar",
                R"([] id0:get_weather({"city": "Par))", R"([] id0:get_weather({"city": "Par))");
  expect_broken(ToolFormat::kQwen3Coder, "<tool_call>\n<function=get_weather>\n<parameter=days>\n1",
                R"([] id0:get_weather({"days": ))", R"([] id0:get_weather({"days": ))");
  const std::string broken = "<function=now>\noops</function>";
  EXPECT_EQ(read_every_cut(weather_reader(ToolFormat::kQwen3Coder, Announce::kEarly), broken), "[oops</function>] id0:now({)");
  EXPECT_EQ(read_every_cut(weather_reader(ToolFormat::kQwen3Coder, Announce::kWhole), broken), "[" + broken + "]");
}

TEST(Glm45Calls, KeysAndValues) {
  const auto f = ToolFormat::kGlm45;
  expect_calls(f,
               "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>北京</arg_value>\n<arg_key>days</arg_key>\n"
               "<arg_value>2</arg_value>\n<arg_key>hours</arg_key>\n<arg_value>[1, 2]</arg_value>\n</tool_call>",
               R"([] id0:get_weather({"city": "北京", "days": 2, "hours": [1, 2]}))");
  // GLM-4.7 writes no lines.
  expect_calls(
      f, "Well.\n<tool_call>get_weather<arg_key>note</arg_key><arg_value>7</arg_value></tool_call><tool_call>now</tool_call>",
      R"([Well.] id0:get_weather({"note": 7}) id1:now({}))");
  expect_calls(f, "<tool_call>now\n</tool_call>\ndone", "[\ndone] id0:now({})");
  expect_calls(f, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "[] id0:f({})");
  expect_content(
      f, {"<tool_call>", "<tool_call>two words</tool_call>", "<tool_call>f\n<arg_kex>", "<tool_call>f", "<tool_call>\nf"});
  expect_broken(f, "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Par</arg_v",
                R"([] id0:get_weather({"city": "Par))", R"([] id0:get_weather({"city": "Par))");
}

TEST(SeedOssCalls, AreParametersBetweenTheirOwnMarks) {
  const auto f = ToolFormat::kSeedOss;
  expect_calls(f,
               "So.\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Rom</parameter>\n<parameter=days>2</parameter>\n"
               "</function>\n</seed:tool_call>",
               R"([So.] id0:get_weather({"city": "Rom", "days": 2}))");
  expect_calls(f, "<function=now></function></seed:tool_call>\n<seed:tool_call><function=now></function></seed:tool_call>",
               "[] id0:now({}) id1:now({})");
  expect_content(f, {"<seed:tool_call>", "<seed:tool_call>text</seed:tool_call>", "<tool_call>{}</tool_call>"});
}

TEST(MiniMaxM2Calls, AreInvoked) {
  const auto f = ToolFormat::kMiniMaxM2;
  expect_calls(f,
               "So.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Rom > \"x\"</parameter>\n"
               "<parameter name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
               R"([So.] id0:get_weather({"city": "Rom > \"x\"", "days": 2}) id1:now({}))");
  expect_calls(f, "<minimax:tool_call>{\"name\": \"f\", \"arguments\": {}}</minimax:tool_call>", "[] id0:f({})");
  expect_content(f, {"<minimax:tool_call>", "<invoke name=", "<invoke name=\"\">", "<invoke name=\"a b\">",
                     "<minimax:tool_call>text", "<invoke name=\"f", "<invoke name=\">"});
  expect_broken(f, "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Par",
                R"([] id0:get_weather({"city": "Par))", R"([] id0:get_weather({"city": "Par))");
}

TEST(ParameterTypes, FollowReferencesAndWhatMayBeNull) {
  constexpr std::string_view kTools =
      R"([{"type":"function","function":{"name":"f","parameters":{"$defs":{"id":{"type":"string"},"loop":{"$ref":"#/$defs/loop"}},
        "properties":{"id":{"$ref":"#/$defs/id"},"maybe":{"anyOf":[{"$ref":"#/$defs/id"},{"type":"null"}]},"n":{"type":"integer"},
        "all":{"allOf":[{"$ref":"#/$defs/id"}]},"loop":{"$ref":"#/$defs/loop"},"gone":{"$ref":"#/$defs/no"},"one":{"const":"x"},"any":{"type":"string","enum":["x","y"]}}}}}])";
  const auto types = ParameterTypes::of_tools(kTools);
  for (const auto& [name, type] :
       std::initializer_list<std::pair<const char*, ParameterType>>{{"id", ParameterType::kText},
                                                                    {"maybe", ParameterType::kTextOrNull},
                                                                    {"n", ParameterType::kValue},
                                                                    {"all", ParameterType::kText},
                                                                    {"loop", ParameterType::kUnknown},
                                                                    {"gone", ParameterType::kUnknown},
                                                                    {"one", ParameterType::kChoice},
                                                                    {"any", ParameterType::kChoice},
                                                                    {"other", ParameterType::kUnknown}})
    EXPECT_EQ(types.of("f", name), type) << name;
  CallReader reader(
      {.format = ToolFormat::kQwen3Coder, .make_id = counted_ids(), .types = std::make_shared<const ParameterTypes>(types)});
  const auto value = [&](const std::string& key, const std::string& text) {
    return read_every_cut(reader, "<function=f><parameter=" + key + ">" + text + "</parameter></function>");
  };
  EXPECT_EQ(value("id", "007"), R"([] id0:f({"id": "007"}))");
  EXPECT_EQ(value("maybe", "007"), R"([] id0:f({"maybe": "007"}))");
  EXPECT_EQ(value("maybe", "null"), R"([] id0:f({"maybe": null}))");
  EXPECT_EQ(value("n", "7"), R"([] id0:f({"n": 7}))");
  EXPECT_EQ(value("one", "\n\n x\n"), R"([] id0:f({"one": "x"}))");
}

TEST(Gemma4Calls, BecomeJson) {
  const auto f = ToolFormat::kGemma4;
  expect_calls(
      f,
      "Well.<|tool_call>call:get_weather{city:<|\"|>San \"F\" {,}<|\"|>,days:3,metric:true,at:{lat:-1.5e3,x:null},"
      "hours:[1,<|\"|>a<|\"|>,[]]}<tool_call|>",
      R"([Well.] id0:get_weather({"city": "San \"F\" {,}", "days": 3, "metric": true, "at": {"lat": -1.5e3, "x": null}, )"
      R"("hours": [1, "a", []]}))");
  expect_calls(f, "<|tool_call>call:now{}<tool_call|><|tool_call>call:a.b{c:<|\"|>\n\\<|\"<|\"|>}<tool_call|>",
               R"([] id0:now({}) id1:a.b({"c": "\n\\<|\""}))");
  // As constraints write it; words as Python has them; what has no marks is a text.
  expect_calls(f, R"(<|tool_call>call:f{"a": "x\u00e9\"}", "b" : [ 1 , {} ]}<tool_call|>)",
               R"([] id0:f({"a": "x\u00e9\"}", "b": [1, {}]}))");
  expect_calls(f, "<|tool_call>call:f{a:True,b:None,c:Paris}<tool_call|>", R"([] id0:f({"a": true, "b": null, "c": "Paris"}))");
  expect_calls(f, "<|tool_call>call:f{a:<|\"|>\xff<|\"|>}", "[] id0:f({\"a\": \"\xEF\xBF\xBD\"})");
  expect_content(f, {"<|tool_call>", "<|tool_call>call:", "<|tool_call>call:f", "<|tool_call>f{}", "<|tool_call>call:{}",
                     "<|tool_call>call:f{a}", "<|tool_call>call:f{a:}", "<|tool_call>call:f{,}",
                     "<|tool_call>call:f{\"a\":\"\\q\"}", "<|tool_call>call:f{a\xff b:1}", "call:f{}", "<|tool_call>call:f{:1}"});
  // What the call's beginning decides stays.
  const std::string broken = "<|tool_call>call:f{a:1]}";
  EXPECT_EQ(read_every_cut(weather_reader(f, Announce::kEarly), broken), "[]}] id0:f({\"a\": 1)");
  EXPECT_EQ(read_every_cut(weather_reader(f, Announce::kWhole), broken), "[" + broken + "]");
  expect_broken(f, "<|tool_call>call:f{a:<|\"|>Par<|", R"([] id0:f({"a": "Par))", R"([] id0:f({"a": "Par))");
  const std::string deep = "<|tool_call>call:f{a:" + std::string(70, '[');
  EXPECT_EQ(read_every_cut(weather_reader(f, Announce::kWhole), deep), "[" + deep + "]");
}

TEST(Olmo3Calls, StandOnLines) {
  const auto f = ToolFormat::kOlmo3;
  expect_calls(f, "I look.\n<function_calls>get_weather(city='Rom', days=2)\nnow()\n</function_calls>",
               R"([I look.] id0:get_weather({"city": "Rom", "days": 2}) id1:now({}))");
  expect_calls(f, "<function_calls>\nf(a=true, b=null, c=None)\n</function_calls>\nDone.",
               R"([
Done.] id0:f({"a": true, "b": null, "c": null}))");
  expect_calls(f, "<function_calls>[f(a=1), now()]</function_calls>", "[] id0:f({\"a\": 1}) id1:now({})");
  expect_calls(f, R"([{"name": "f", "parameters": {"a": 1}}])", R"([] id0:f({"a": 1}))");
  expect_calls(f, "<function_calls>now()\nSo be it.", "[\nSo be it.] id0:now({})");
  expect_content(f, {"<function_calls>", "<function_calls></function_calls>", "<function_calls>text", "now()"});
  expect_broken(f, "<function_calls>f(a='x", R"([] id0:f({"a": "x))", R"([] id0:f({"a": "x))");
}

TEST(KimiK2Calls, GiveTheirOwnIds) {
  const auto f = ToolFormat::kKimiK2;
  expect_calls(
      f,
      "Let me look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
      "{\"city\": \"<|tool_call_end|>\"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}"
      "<|tool_call_end|><|tool_calls_section_end|>",
      "[Let me look.] functions.get_weather:0:get_weather({\"city\": \"<|tool_call_end|>\"}) functions.now:1:now({})");
  // The section's mark is missing; an id is given twice, or is none.
  expect_calls(f,
               "<|tool_call_begin|>functions.a:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
               "<|tool_call_begin|>functions.a:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
               "<|tool_call_begin|>b<|tool_call_argument_begin|>{}<|tool_call_end|>",
               "[] functions.a:0:a({}) id0:a({}) id1:b({})");
  expect_content(f, {"<|tool_calls_section_begin|>", "<|tool_calls_section_begin|>text", "<|tool_call_begin|>functions.f:0",
                     "<|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}"});
  expect_broken(f, "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": [",
                "[] functions.f:0:f({\"a\": [)", "[] functions.f:0:f({\"a\": [)");
}

TEST(DeepSeekV31Calls, AreReadWithBothNames) {
  for (const auto f : {ToolFormat::kDeepSeekV3, ToolFormat::kDeepSeekV31}) {
    expect_calls(f,
                 "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Rom\"}<｜tool▁call▁end｜>"
                 "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                 "[] id0:get_weather({\"city\": \"Rom\"}) id1:now({})");
  }
}

TEST(PythonicCalls, ValuesBecomeJson) {
  for (const auto f : {ToolFormat::kPythonic, ToolFormat::kLlama4Pythonic, ToolFormat::kGemma}) {
    expect_calls(f, R"([get_weather(city="Paris", days=3, metric=True), now()])",
                 R"([] id0:get_weather({"city": "Paris", "days": 3, "metric": true}) id1:now({}))");
    expect_calls(f,
                 R"( [f(a='it\'s "x"\n\u00e9\U0001F600\x41\101\q', b=[1, -2.5e3, None,  'x' ], c={'k': {"l": []}, "m": false})])",
                 R"([] id0:f({"a": "it's \"x\"\né😀AA\\q", "b": [1, -2.5e3, null, "x"], "c": {"k": {"l": []}, "m": false}}))");
    expect_calls(f, R"([f(a="\ud83d\ude00 \ud83d.", b=")]")])",
                 R"([] id0:f({"a": "😀 )"
                 "\xEF\xBF\xBD"
                 R"(.", "b": ")]"}))");
    expect_calls(f, R"([f(a='\x01\b\\')])", R"([] id0:f({"a": "\u0001\u0008\\"}))");
    expect_calls(f, "[f(a=1,)] and so on", "[ and so on] id0:f({\"a\": 1})");
    expect_calls(f, R"([{"name": "f", "parameters": {"a": 1}}])", R"([] id0:f({"a": 1}))");
    expect_content(
        f, {"[1, 2]", "[see(this)]", "[link](there)", "[f(a=open(x))]", "[f(a=b)]", "[f(1)]", "[", "[f", "[f(", "f(a=1)", "[]"});
  }
  expect_calls(ToolFormat::kLlama4Pythonic, "So: <|python_start|>[f(a=1)]<|python_end|>", "[So:] id0:f({\"a\": 1})");
  expect_calls(ToolFormat::kPythonic, "<|python_tag|>[f(a=1)]", "[] id0:f({\"a\": 1})");
}

TEST(PythonicCalls, ThatBreakOff) {
  for (const std::string cut : {"[f(a='x", "[f(a=[1, "}) {
    const std::string arguments = cut == "[f(a='x" ? "{\"a\": \"x" : "{\"a\": [1, ";
    expect_broken(ToolFormat::kPythonic, cut, "[] id0:f(" + arguments + ")", "[] id0:f(" + arguments + ")");
  }
}

TEST(GemmaCalls, StandInFences) {
  const auto f = ToolFormat::kGemma;
  expect_calls(f, "```tool_code\n[get_weather(city='Rom')]\n```", "[] id0:get_weather({\"city\": \"Rom\"})");
  expect_calls(f, "Sure.\n```tool_code\nget_weather(city=\"Rom\")\n```\n", "[Sure.\n] id0:get_weather({\"city\": \"Rom\"})");
  expect_calls(f, "```json\n{\"name\": \"f\", \"parameters\": {}}\n```", "[] id0:f({})");
  expect_content(f, {"```python\nprint(1)\n```", "```tool_code\nx = 1\n```", "```tool_code"});
}

TEST(GraniteCalls, AllVersions) {
  const auto f = ToolFormat::kGranite;
  for (const std::string begin : {"<|tool_call|>", "<tool_call>", "<|tool_call|> ", ""}) {
    expect_calls(f, begin + R"([{"name": "f", "arguments": {"a": "]"}}, {"name": "g", "arguments": {}}])",
                 R"([] id0:f({"a": "]"}) id1:g({}))");
  }
  expect_calls(f, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "[] id0:f({})");
  expect_calls(ToolFormat::kGranite20b, "<function_call> {\"name\": \"f\", \"arguments\": {}} <function_call> {\"name\": \"g\"}",
               "[] id0:f({}) id1:g({})");
  expect_content(f, {"<|tool_call|>", "<|tool_call|>[]", "[1]"});
}

TEST(Phi4MiniCalls, BothForms) {
  const auto f = ToolFormat::kPhi4Mini;
  expect_calls(f, R"(functools[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])",
               R"([] id0:f({"a": 1}) id1:g({}))");
  expect_calls(f, R"(<|tool_call|>[{"name": "f", "arguments": {}}]<|/tool_call|>)", "[] id0:f({})");
  expect_content(f, {"import functools", "functools.reduce", "functools[0]"});
}

}  // namespace
}  // namespace choral::serve
