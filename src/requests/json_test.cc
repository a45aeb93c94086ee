#include "requests/json.h"

#include <gmock/gmock.h>
#include <malloc.h>

namespace choral::requests {
namespace {

using ::testing::HasSubstr;

// `count` times `entry`, with commas between them.
std::string list_of(int count, std::string_view entry) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    out += fmt::format(fmt::runtime(entry), i);
  }
  return out;
}

TEST(ParsedSize, IsNoLessThanWhatTheParsedFormTakes) {
  constexpr int kMany = 200'000;
  for (const std::string& text :
       {"{\"a\":[" + list_of(kMany, "{{}}") + "]}", "{\"a\":[" + list_of(kMany, "[]") + "]}",
        "{\"a\":[" + list_of(kMany, "[{}]") + "]}", "{\"a\":[" + list_of(kMany, "{}") + "]}",
        "{\"a\":[" + list_of(kMany, "\"\"") + "]}", "{\"a\":[" + list_of(kMany, "\"a text of some length {}\"") + "]}",
        "{" + list_of(kMany / 100, "\"" + std::string(1000, 'k') + "{}\":1") + "}", "{" + list_of(kMany, "\"k{}\":1") + "}",
        "{" + list_of(kMany, "\"a key that is long enough {}\":null") + "}",
        "{\"a\":[" + list_of(kMany / 4, "{{\"a\":1,\"b\":{{\"c\":[1,2,3]}}}}") + "]}"}) {
    ParsedSize size;
    const auto before = static_cast<int64_t>(mallinfo2().uordblks + mallinfo2().hblkhd);
    const auto json = parse_object(text, "the text", size);
    const auto taken = static_cast<int64_t>(mallinfo2().uordblks + mallinfo2().hblkhd) - before;
    ASSERT_TRUE(json.ok()) << json.status().to_string();
    EXPECT_LE(taken, size.bytes()) << text.substr(0, 40);
  }
}

TEST(ParsedSize, ObjectsOfNothingAreRefusedBeforeTheyAreMade) {
  const std::string body = "{\"messages\":[" + list_of(4'000'000, "{{}}") + "]}";  // 12 MB
  const auto before = static_cast<int64_t>(mallinfo2().uordblks + mallinfo2().hblkhd);
  const auto json = parse_object(body, "the body");
  ASSERT_EQ(json.status().code(), Code::kTooLarge);
  EXPECT_THAT(json.status().message(), HasSubstr("the body holds so many values that they take more than 128.0 MiB of memory"));
  EXPECT_LE(static_cast<int64_t>(mallinfo2().uordblks + mallinfo2().hblkhd) - before, 1 << 20);
}

TEST(ParsedSize, TextsInsideOfOneRequestCountTogether) {
  const std::string half = "{\"a\":[" + list_of(500'000, "{{}}") + "]}";
  ParsedSize size;
  EXPECT_TRUE(parse_object(half, "the first", size).ok());
  const int64_t first = size.bytes();
  EXPECT_EQ(parse_object(half, "the second", size).status().code(), Code::kTooLarge);
  EXPECT_EQ(size.bytes(), first);
  EXPECT_TRUE(parse_object("{}", "the third", size).ok());
}

TEST(ParsedSize, BracketsInsideOfTextsAreNoValues) {
  ParsedSize size;
  ASSERT_TRUE(parse_object(R"({"a":"[[{{,:\\\"[[["})", "the text", size).ok());
  EXPECT_LT(size.bytes(), 600);
}

}  // namespace
}  // namespace choral::requests
