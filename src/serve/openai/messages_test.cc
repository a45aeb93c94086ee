#include "serve/openai/messages.h"

#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

std::string taken(std::string_view messages) {
  const auto got = template_messages(messages);
  return got.ok() ? *got : got.status().message();
}

TEST(TemplateMessages, AreAsTemplatesReadThem) {
  EXPECT_EQ(taken(R"([{"role":"developer","content":"a"}])"), R"([{"role":"system","content":"a"}])");
  EXPECT_EQ(taken(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_text","text":"b"}]}])"),
            R"([{"role":"user","content":"a\nb"}])");
  EXPECT_EQ(taken(R"([{"role":"assistant","content":null}])"), R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(taken(R"([{"role":"user","content":"x","name":"Ann"}])"), R"([{"role":"user","content":"x","name":"Ann"}])");
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
      HasSubstr("must be the text of a JSON object"));
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
