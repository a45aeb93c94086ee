#include "serve/openai/messages.h"

#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

std::string taken(std::string_view messages) {
  ParsedSize size;
  const auto got = template_messages(Json::parse(messages), size);
  return got.ok() ? *got : got.status().message();
}

TEST(TemplateMessages, AreAsTemplatesReadThem) {
  EXPECT_EQ(taken(R"([{"role":"developer","content":"a"}])"), R"([{"role":"system","content":"a"}])");
  EXPECT_EQ(taken(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_text","text":"b"}]}])"),
            R"([{"role":"user","content":"a\nb"}])");
  EXPECT_EQ(taken(R"([{"role":"assistant","content":null}])"), R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(taken(R"([{"role":"user","content":"x","name":"Ann"}])"), R"([{"role":"user","content":"x","name":"Ann"}])");
}

TEST(TemplateMessages, EarlierThoughtsHaveOneName) {
  constexpr std::string_view kThought = R"([{"role":"assistant","content":"a","reasoning_content":"t"}])";
  EXPECT_EQ(taken(kThought), kThought);
  EXPECT_EQ(taken(R"([{"role":"assistant","content":"a","reasoning":"t"}])"), kThought);
  EXPECT_EQ(taken(R"([{"role":"assistant","reasoning":"u","content":"a","reasoning_content":"t"}])"), kThought);
  EXPECT_EQ(taken(R"([{"role":"assistant","content":"a","reasoning":null,"reasoning_content":null}])"),
            R"([{"role":"assistant","content":"a"}])");
  EXPECT_THAT(taken(R"([{"role":"assistant","content":"a","reasoning":[]}])"), HasSubstr("'messages[0].reasoning'"));
}

TEST(TemplateMessages, ArgumentsOfCallsAreObjects) {
  EXPECT_EQ(
      taken(
          R"([{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"b\":1,\"a\":[2]}"}}]}])"),
      R"([{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{"b":1,"a":[2]}}}],"content":""}])");
  EXPECT_THAT(taken(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1"}}]}])"),
              HasSubstr("'messages[0].tool_calls[0].function.arguments'"));
  EXPECT_THAT(
      taken(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":")" + std::string(100, '[') + R"("}}]}])"),
      HasSubstr("nested deeper than 64 levels"));
}

TEST(TemplateMessages, ArgumentsCountAsPartOfTheBody) {
  std::string objects = "{}";
  for (int i = 0; i < 300'000; ++i) objects += ",{}";
  const std::string call = R"({"function":{"name":"f","arguments":"{\"a\":[)" + objects + R"(]}"}})";
  const auto calls = [&](int count) {
    std::string list = call;
    for (int i = 1; i < count; ++i) list += "," + call;
    return taken(R"([{"role":"assistant","tool_calls":[)" + list + "]}]");
  };
  EXPECT_THAT(calls(1), HasSubstr(R"("arguments":{"a":[{},{})"));
  EXPECT_THAT(calls(4), HasSubstr("more than 128.0 MiB of memory"));
}

TEST(TemplateMessages, MistakesNameTheirPlace) {
  EXPECT_THAT(taken("[]"), HasSubstr("at least one"));
  EXPECT_THAT(taken("{}"), HasSubstr("list"));
  EXPECT_THAT(taken(R"([{"role":"user","content":"a"}, 7])"), HasSubstr("'messages[1]'"));
  EXPECT_THAT(taken(R"([{"content":"a"}])"), HasSubstr("'messages[0].role' is missing"));
  EXPECT_THAT(taken(R"([{"role":"king","content":"a"}])"), HasSubstr("'messages[0].role'"));
  EXPECT_THAT(taken(R"([{"role":"user"}])"), HasSubstr("'messages[0].content' is missing"));
  EXPECT_THAT(taken(R"([{"role":"user","content":7}])"), HasSubstr("'messages[0].content'"));
  EXPECT_THAT(taken(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"), HasSubstr("'image_url'"));
}

}  // namespace
}  // namespace choral::serve
