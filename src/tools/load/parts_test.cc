// The parts of the load generator that need no server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tools/load/answer_reader.h"
#include "tools/load/endpoint.h"
#include "tools/load/latencies.h"
#include "tools/load/request_maker.h"
#include "tools/load/sse_reader.h"

namespace choral::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> events_of(std::string_view text, size_t step, Status* status = nullptr) {
  SseReader reader;
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size(); at += step) {
    Status fed = reader.feed(text.substr(at, step), [&out](std::string_view data) {
      out.emplace_back(data);
      return Status();
    });
    if (status != nullptr) *status = fed;
    if (!fed.ok()) break;
  }
  return out;
}

TEST(SseReader, EventsAreThoseOfTheStandard) {
  const std::string text =
      "\xEF\xBB\xBF"
      "data: one\n\n"
      ": a comment\n\n"
      "event: x\ndata:two\ndata: and more\nid: 7\n\n"
      "data\n\n"
      "data:  a space stays\r\n\r\n"
      "data: cr only\r\r"
      "dataset: no\n\n"
      "data: never ended";
  for (size_t step = 1; step <= text.size(); ++step) {
    EXPECT_THAT(events_of(text, step), ElementsAre("one", "two\nand more", "", " a space stays", "cr only")) << step;
  }
}

TEST(SseReader, AnEventHasALimit) {
  Status status;
  const std::string endless = "data: " + std::string(SseReader::kMaxEventBytes, 'x');
  events_of(endless, 1 << 16, &status);
  EXPECT_EQ(status.code(), Code::kTooLarge);
  std::string lines;
  for (size_t i = 0; i < SseReader::kMaxEventBytes / 1000 + 10; ++i) lines += "data: " + std::string(1000, 'x') + "\n";
  events_of(lines, 1 << 16, &status);
  EXPECT_EQ(status.code(), Code::kTooLarge) << "many lines of one event";
}

TEST(Endpoint, Forms) {
  const auto parsed = [](std::string_view url) {
    const auto e = parse_endpoint(url);
    return e.ok() ? e->host + "|" + e->port + "|" + e->unix_path + "|" + e->prefix : e.status().message();
  };
  EXPECT_EQ(parsed("http://h:81/a/v1"), "h|81||/a");
  EXPECT_EQ(parsed("h"), "h|80||");
  EXPECT_EQ(parsed("http://[::1]:8000/"), "::1|8000||");
  EXPECT_EQ(parsed("unix:/run/x"), "|80|/run/x|");
  EXPECT_EQ(parsed("unix:///run/x"), "|80|/run/x|");
  EXPECT_EQ(parse_endpoint("http://[::1]:8000")->host_header(), "[::1]:8000");
  EXPECT_EQ(parse_endpoint("http://h")->host_header(), "h");
  for (const char* bad : {"", "http://", "http://h:0", "http://h:65536", "http://h:8x", "ftp://h", "http://h?q", "http://u:p@h",
                          "http://[::1", "http://a b", "http://h/\r\nX: y", "unix:"}) {
    EXPECT_EQ(parse_endpoint(bad).status().code(), Code::kInvalidArgument) << bad;
  }
  EXPECT_EQ(parse_endpoint("unix:/" + std::string(108, 'x')).status().code(), Code::kInvalidArgument);
}

TEST(Latencies, PercentilesAreCloseAndExtremesExact) {
  Latencies latencies;
  EXPECT_EQ(latencies.summary().count, 0);
  for (int i = 1; i <= 1000; ++i) latencies.add(i * 1e-3);
  const auto s = latencies.summary();
  EXPECT_EQ(s.count, 1000);
  EXPECT_NEAR(s.mean, 0.5005, 1e-9);
  EXPECT_NEAR(s.p50, 0.5, 0.5 * 0.01);
  EXPECT_NEAR(s.p90, 0.9, 0.9 * 0.01);
  EXPECT_NEAR(s.p99, 0.99, 0.99 * 0.01);
  EXPECT_EQ(s.max, 1.0);
  Latencies odd;
  for (const double seconds : {-1.0, 0.0, 1e9}) odd.add(seconds);
  EXPECT_EQ(odd.summary().max, 1e9);
  EXPECT_LE(odd.summary().p50, 1e-5);
}

TEST(AnswerReader, PiecesOfEveryEndpoint) {
  const auto text = [](std::string_view json) { return read_answer(json)->has_text; };
  EXPECT_TRUE(text(R"({"choices":[{"text":"a"}]})"));
  EXPECT_TRUE(text(R"({"choices":[{"delta":{"content":"a"}}]})"));
  EXPECT_TRUE(text(R"({"choices":[{"delta":{"reasoning_content":"a"}}]})"));
  EXPECT_TRUE(text(R"({"choices":[{"message":{"content":null,"tool_calls":[{"id":"x"}]}}]})"));
  EXPECT_FALSE(text(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})"));
  EXPECT_FALSE(text(R"({"choices":[]})"));
  EXPECT_FALSE(text(R"({"choices":[1,null,{"text":2,"delta":[]}]})"));
  EXPECT_FALSE(read_answer(R"({"choices":[],"usage":null})")->completion_tokens.has_value());
  EXPECT_EQ(read_answer(R"({"choices":[],"usage":{"completion_tokens":-4}})")->completion_tokens, std::nullopt);
  EXPECT_EQ(read_answer(R"({"error":"plain"})")->error, "plain");
  EXPECT_EQ(read_answer(R"({"error":{"message":"in it"}})")->error, "in it");
  EXPECT_FALSE(read_answer("[]").ok());
  EXPECT_FALSE(read_answer("{}").ok());
  EXPECT_LE(refusal_text(std::string(5000, 'x')).size(), 310U);
  EXPECT_EQ(refusal_text(R"({"detail":"no"})"), "no");
  EXPECT_THAT(refusal_text("a\nb"), HasSubstr("a\\nb"));
  EXPECT_EQ(first_model(R"({"data":[]})").status().code(), Code::kNotFound);
}

TEST(RequestMaker, ZipfAsksTheFirstMost) {
  LoadOptions options{.adapters = {"a", "b", "c", "d"}, .skew = AdapterSkew::kZipf, .prompt_tokens = 1};
  RequestMaker maker(options, "m");
  std::map<std::string, int> seen;
  for (int i = 0; i < 4000; ++i) ++seen[maker.next().model];
  const double unit = 4000 / (1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4);
  EXPECT_NEAR(seen["a"], unit, 150);
  EXPECT_NEAR(seen["b"], unit / 2, 150);
  EXPECT_NEAR(seen["d"], unit / 4, 120);
}

TEST(RequestMaker, TheSameOptionsGiveTheSameLoad) {
  const LoadOptions options{.rate = 100, .adapters = {"a", "b"}, .skew = AdapterSkew::kUniform, .seed = 7};
  RequestMaker one(options, "m"), other(options, "m");
  double sum = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto request = one.next();
    EXPECT_EQ(request.body, other.next().body);
    const double gap = one.next_gap_s();
    EXPECT_EQ(gap, other.next_gap_s());
    EXPECT_GE(gap, 0);
    sum += gap;
  }
  EXPECT_NEAR(sum / 2000, 0.01, 0.001) << "100 a second on average";
}

}  // namespace
}  // namespace choral::tools
