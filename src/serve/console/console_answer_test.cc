#include "serve/console/console_answer.h"

#include <gtest/gtest.h>

namespace choral::serve {
namespace {

constexpr ConsoleFile kScript{"main.js", "text/javascript", "\"1f\"", true, false, "packed"};
constexpr ConsoleFile kPart{"part-1A2B.js", "text/javascript", "\"2f\"", true, true, "packed"};
constexpr ConsoleFile kPage{kConsolePage, "text/html; charset=utf-8", "\"3f\"", false, false, "<!doctype html>"};

HttpRequest asking(Headers headers) {
  HttpRequest request;
  request.headers = std::move(headers);
  return request;
}

int status_with(std::string accepted) {
  return console_answer(kScript, asking({{"Accept-Encoding", std::move(accepted)}})).status;
}

TEST(ConsoleAnswer, GivesACompressedFileToWhoeverTakesIt) {
  for (const char* accepted : {"gzip", "gzip, deflate, br", "br, GZIP;q=0.5", "x-gzip", "*", "br;q=0, *;q=0.1"})
    EXPECT_EQ(status_with(accepted), 200) << accepted;
  for (const char* accepted : {"", "identity", "br", "gzip;q=0", "gzip; q=0.000, *", "*;q=0", "gzipped"})
    EXPECT_EQ(status_with(accepted), 406) << accepted;
  const HttpResponse any = console_answer(kScript, asking({}));
  EXPECT_EQ(any.status, 200);
  EXPECT_EQ(any.headers.get("Content-Encoding"), "gzip");
  EXPECT_EQ(any.headers.get("Vary"), "Accept-Encoding");
  EXPECT_EQ(any.body, "packed");
}

TEST(ConsoleAnswer, GivesThePageToEveryone) {
  const HttpResponse page = console_answer(kPage, asking({{"Accept-Encoding", "identity"}}));
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.find("Content-Encoding"), nullptr);
  EXPECT_EQ(page.body, "<!doctype html>");
}

TEST(ConsoleAnswer, SendsNothingThatTheClientHas) {
  for (const char* known : {"\"1f\"", "W/\"1f\"", "\"0\", \"1f\"", "*"}) {
    const HttpResponse answer = console_answer(kScript, asking({{"If-None-Match", known}}));
    EXPECT_EQ(answer.status, 304) << known;
    EXPECT_TRUE(answer.body.empty());
    EXPECT_EQ(answer.headers.get("ETag"), "\"1f\"");
  }
  for (const char* known : {"", "1f", "\"1F\"", "\"1f", ",,,"})
    EXPECT_EQ(console_answer(kScript, asking({{"If-None-Match", known}})).status, 200) << known;
}

TEST(ConsoleAnswer, LetsOnlyFilesNamedByTheirContentBeKept) {
  EXPECT_EQ(console_answer(kScript, asking({})).headers.get("Cache-Control"), "no-cache");
  EXPECT_NE(console_answer(kPart, asking({})).headers.get("Cache-Control").find("immutable"), std::string_view::npos);
}

TEST(ConsoleAnswer, RunsNoScriptButItsOwn) {
  const HttpResponse page = console_answer(kPage, asking({}));
  const std::string_view policy = page.headers.get("Content-Security-Policy");
  EXPECT_NE(policy.find("default-src 'none'"), policy.npos);
  EXPECT_EQ(policy.find("unsafe"), policy.npos);
  EXPECT_EQ(policy.find("http"), policy.npos);
  EXPECT_EQ(page.headers.get("X-Content-Type-Options"), "nosniff");
}

TEST(ConsoleFiles, HaveThePageAndNoNameTwice) {
  ASSERT_NE(console_file(kConsolePage), nullptr);
  EXPECT_EQ(console_file("nothing"), nullptr);
  EXPECT_EQ(console_file(""), nullptr);
  size_t bytes = 0;
  for (const auto& file : console_files()) {
    EXPECT_EQ(console_file(file.name), &file) << file.name;
    EXPECT_TRUE(file.etag.size() > 2 && file.etag.front() == '"' && file.etag.back() == '"') << file.name;
    EXPECT_FALSE(file.content_type.empty()) << file.name;
    EXPECT_EQ(file.bytes.starts_with("\x1f\x8b"), file.is_gzip) << file.name;
    bytes += file.bytes.size();
  }
  EXPECT_LE(bytes, 400'000U);
}

}  // namespace
}  // namespace choral::serve
