// The automaton against a JSON parser: both take the same texts, up to the limits that the automaton adds.
#include "text/grammar/json_automaton.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace choral::text {
namespace {

bool takes(std::string_view text, JsonLimits limits = {}) {
  const JsonAutomaton json(limits);
  JsonState state;
  for (const char c : text) {
    if (!json.step(state, static_cast<uint8_t>(c))) return false;
  }
  return json.complete(state);
}

TEST(JsonAutomaton, TakesObjects) {
  for (const char* text : {"{}", " \n{ }", R"({"a":1})", R"({"a":[],"b":{},"a":[1,-2.5e+10,0,-0.0,1E5,true,false,null,"x"]})",
                           R"({"\"\\\/\b\f\n\r\t\u00e9\uD83D\ude00":"é€😀"})", "{\"\x7f\" : \t[\r\n[ ] , { } ] }"}) {
    EXPECT_TRUE(takes(text)) << text;
  }
}

TEST(JsonAutomaton, RefusesWhatIsNoObject) {
  for (const char* text : {"",
                           " ",
                           "[]",
                           "1",
                           "\"a\"",
                           "null",
                           "{",
                           "{}}",
                           "{} ",
                           "{,}",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "{'a':1}",
                           "{\"a\":01}",
                           "{\"a\":+1}",
                           "{\"a\":.5}",
                           "{\"a\":1.}",
                           "{\"a\":1e}",
                           "{\"a\":-}",
                           "{\"a\":[1,]}",
                           "{\"a\":[,1]}",
                           "{\"a\":[1 2]}",
                           "{\"a\":tru}",
                           "{\"a\":truE}",
                           "{\"a\":nullx}",
                           "{\"a\":\"\n\"}",
                           "{\"a\":\"\\x\"}",
                           "{\"a\":\"\\u12g4\"}",
                           "{\"a\":[1}",
                           "{\"a\":1]",
                           "{\"a\" 1}",
                           "{\"a\":\"\\ud800\"}",
                           "{\"a\":\"\\udc00\"}",
                           "{\"a\":\"\\ud800\\u0041\"}",
                           "{\"a\":\"\\ud800\\ud800\"}",
                           "{\"a\":\"\xc0\xaf\"}",
                           "{\"a\":\"\xed\xa0\x80\"}",
                           "{\"a\":\"\xf4\x90\x80\x80\"}",
                           "{\"a\":\"\xe9\"}",
                           "{\"a\":\"\x80\"}",
                           "{\"a\":\"\xf0\x8f\xbf\xbf\"}",
                           "{\"a\":\"\xe0\x9f\xbf\"}",
                           "{/**/}"}) {
    EXPECT_FALSE(takes(text)) << text;
  }
}

TEST(JsonAutomaton, TakesAnyValueWhereItIsAskedTo) {
  const auto value = [](std::string_view text) {
    const JsonAutomaton json;
    JsonState state = JsonAutomaton::start_of_value();
    for (const char c : text) {
      if (!json.step(state, static_cast<uint8_t>(c))) return false;
    }
    return json.complete(state);
  };
  for (const char* text : {"{}", "[]", " [1]", "\"a\"", "0", "-0", "12", "1.5", "1e5", "true", "null", "{\"a\":[1,{}]}"}) {
    EXPECT_TRUE(value(text)) << text;
  }
  for (const char* text : {"", " ", "1 ", "1,", "1]", "-", "1.", "1e", "\"a", "\"a\",", "tru", "[1", "nulll", "]", "}", "{}1"}) {
    EXPECT_FALSE(value(text)) << text;
  }
}

TEST(JsonAutomaton, KeepsItsLimits) {
  const auto nested = [](int depth) { return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}"; };
  EXPECT_TRUE(takes(nested(64)));
  EXPECT_FALSE(takes(nested(65)));
  EXPECT_TRUE(takes(nested(3), {.max_depth = 3}));
  EXPECT_FALSE(takes(nested(4), {.max_depth = 3}));
  EXPECT_TRUE(takes("{" + std::string(64, ' ') + "\"a\":" + std::string(64, '\n') + "1}"));
  EXPECT_FALSE(takes("{" + std::string(65, ' ') + "}"));
  EXPECT_FALSE(takes("{\"a\":1" + std::string(65, ' ') + "}"));
  EXPECT_TRUE(takes("{\"a\":" + std::string(24, '1') + "." + std::string(24, '1') + "e-99}"));
  EXPECT_FALSE(takes("{\"a\":" + std::string(25, '1') + "}"));
  EXPECT_FALSE(takes("{\"a\":0." + std::string(25, '1') + "}"));
  EXPECT_FALSE(takes("{\"a\":1e100}"));
}

// Random texts near JSON: the automaton and the parser must agree.
TEST(JsonAutomaton, AgreesWithAParser) {
  std::mt19937 random(7);
  const std::vector<std::string> pieces = {
      "{",  "}",  "[",   "]",     ",",     ":",       "\"",   "a",      "\\n", "\\u00e9", "1",
      "-",  "0",  ".5",  "e3",    "true",  "null",    " ",    "\"k\":", "é",   "😀",       "\\ud83d\\ude00",
      "\"", "{}", "[1]", "false", "\"v\"", ",\"b\":", "\xc3", "\\",     "}",   "]"};
  int both = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string text = "{";
    const size_t length = random() % 9;
    for (size_t i = 0; i < length; ++i) text += pieces[random() % pieces.size()];
    if (random() % 2) text += "}";
    const bool trailing = text.back() == ' ';
    const bool parsed = nlohmann::json::accept(text) && !trailing;
    ASSERT_EQ(takes(text), parsed) << text;
    both += parsed;
  }
  EXPECT_GT(both, 1000);
}

}  // namespace
}  // namespace choral::text
