#include "serve/http/request_ids.h"

#include <gmock/gmock.h>

#include <set>

#include "serve/http/test_server_test.h"

namespace choral::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kSpan = "00f067aa0ba902b7";

std::string parent(std::string_view version = "00", std::string_view flags = "01") {
  return fmt::format("{}-{}-{}-{}", version, kTrace, kSpan, flags);
}

TEST(RequestIds, AClientsOwnIsTaken) {
  for (const std::string& given : {std::string("a"), std::string("req-1/2:3~{}"), std::string(128, 'x')})
    EXPECT_EQ(make_request_ids({{"x-request-id", given}}).request, given);
  std::set<std::string> made;
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("a\"b"), std::string("a\\b"), std::string("a\tb"),
                                 std::string("\xc3\xa9"), std::string("a\x7f"), std::string(129, 'x')}) {
    const std::string id = make_request_ids({{"X-Request-Id", bad}}).request;
    EXPECT_THAT(id, MatchesRegex("[0-9a-f]{24}")) << bad;
    made.insert(id);
  }
  EXPECT_EQ(made.size(), 8u) << "two requests have one id";
}

TEST(RequestIds, ATraceGoesOn) {
  const RequestIds ids = make_request_ids({{"Traceparent", parent()}});
  EXPECT_EQ(ids.trace, kTrace);
  EXPECT_EQ(ids.parent_span, kSpan);
  EXPECT_THAT(ids.span, MatchesRegex("[0-9a-f]{16}"));
  EXPECT_NE(ids.span, kSpan);
  Headers headers;
  add_ids(ids, headers);
  EXPECT_EQ(headers.get("traceparent"), fmt::format("00-{}-{}-01", kTrace, ids.span));
  EXPECT_EQ(headers.get("X-Request-Id"), ids.request);
  EXPECT_EQ(ids_text(ids), fmt::format(" request={} trace={} span={} parent={}", ids.request, kTrace, ids.span, kSpan));
}

TEST(RequestIds, FlagsThatNobodyKnowsAreNotPassedOn) {
  for (const auto& [given, passed] : {std::pair("00", "-00"), std::pair("ff", "-03"), std::pair("fe", "-02")}) {
    Headers headers;
    add_ids(make_request_ids({{"traceparent", parent("00", given)}}), headers);
    EXPECT_THAT(headers.get("traceparent"), ::testing::EndsWith(passed)) << given;
  }
}

TEST(RequestIds, OfALaterVersionWhatIsKnownIsRead) {
  EXPECT_EQ(make_request_ids({{"traceparent", parent("01")}}).trace, kTrace);
  EXPECT_EQ(make_request_ids({{"traceparent", parent("cc") + "-what-the-future-brings"}}).trace, kTrace);
  EXPECT_EQ(make_request_ids({{"traceparent", parent("cc") + ".what"}}).trace, "");
}

TEST(RequestIds, AParentThatIsNotWellFormedIsNone) {
  std::string upper = parent();
  upper[4] = 'B';
  std::string letters = parent();
  letters.back() = 'g';
  const std::string nowhere = fmt::format("00-{}-{}-01", std::string(32, '0'), kSpan);
  const std::string nobody = fmt::format("00-{}-{}-01", kTrace, std::string(16, '0'));
  for (const auto& bad :
       {std::string(), std::string("00"), parent("ff"), parent("0g"), upper, letters, nowhere, nobody, parent() + "-more",
        parent().substr(1), parent().substr(0, 54), " " + parent(), std::string(4096, '-')}) {
    const RequestIds ids = make_request_ids({{"traceparent", bad}});
    EXPECT_EQ(ids.trace + ids.span + ids.parent_span, "") << bad;
    Headers headers;
    add_ids(ids, headers);
    EXPECT_EQ(headers.find("traceparent"), nullptr) << bad;
  }
  EXPECT_EQ(make_request_ids({{"traceparent", parent()}, {"traceparent", parent()}}).trace, "") << "which one of the two?";
}

// Whatever becomes of a request, its answer says what it was called.
TEST(RequestIds, StandInEveryAnswer) {
  const auto server = testing::serve(
      testing::on_a_free_port(),
      [](const std::shared_ptr<HttpExchange>& exchange) {
        if (exchange->request().path == "/lost") return;
        if (exchange->request().path == "/fault") static_cast<void>(std::string().at(1));
        if (exchange->request().path != "/stream") return testing::echo(exchange);
        exchange->begin_stream(200, {});
        exchange->end_stream();
      },
      [](const HttpRequest& head) -> std::optional<HttpResponse> {
        if (head.path == "/forbidden") return HttpResponse{.status = 403};
        return std::nullopt;
      });
  const std::string ids = fmt::format("X-Request-Id: mine\r\ntraceparent: {}\r\n", parent());
  for (const char* path : {"/echo", "/stream", "/forbidden", "/lost", "/fault"}) {
    auto client = testing::RawClient::tcp(server->port());
    client.send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}\r\n", path, ids));
    const std::string answer = client.read_to_end();
    EXPECT_THAT(answer, HasSubstr("\r\nX-Request-Id: mine\r\n")) << path;
    EXPECT_THAT(answer, HasSubstr(fmt::format("\r\ntraceparent: 00-{}-", kTrace))) << path;
    EXPECT_THAT(answer, Not(HasSubstr(kSpan))) << path;
  }
  for (const char* malformed : {"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", "nonsense\r\n\r\n"}) {
    auto client = testing::RawClient::tcp(server->port());
    client.send(malformed);
    EXPECT_THAT(client.read_to_end(), HasSubstr("\r\nX-Request-Id: ")) << malformed;
  }
}

}  // namespace
}  // namespace choral::serve
