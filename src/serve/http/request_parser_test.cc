#include "serve/http/request_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace choral::serve {
namespace {

using namespace std::string_literals;

struct Parsed {
  int status = 0;  // of the fault; 200 = a request, 0 = wants more bytes
  std::string message;
  HttpRequest request;
  bool keep_alive = false;
  size_t rest = 0;  // bytes that belong to the next request
};

// In pieces of `step` bytes, as a connection feeds them.
Parsed parse(std::string_view bytes, size_t step, const HttpLimits& limits = {}) {
  RequestParser parser(limits);
  std::string kept;
  const auto feed = [&] {
    for (;;) {
      const bool had_head = parser.head_done();
      kept.erase(0, parser.feed(kept));
      if (had_head == parser.head_done()) return;
    }
  };
  for (size_t at = 0; at < bytes.size() && parser.fault() == nullptr && !parser.done(); at += step) {
    kept += bytes.substr(at, step);
    feed();
    EXPECT_LE(parser.done() || parser.fault() != nullptr ? 0 : kept.size(), static_cast<size_t>(limits.header_bytes));
    if (parser.done()) kept += bytes.substr(std::min(bytes.size(), at + step));
  }
  Parsed parsed;
  if (parser.fault() != nullptr) return {parser.fault()->status, parser.fault()->message, {}, false, 0};
  if (!parser.done()) return parsed;
  return {200, "", std::move(parser.request()), parser.keep_alive(), kept.size()};
}

Parsed parse(std::string_view bytes, const HttpLimits& limits = {}) {
  Parsed whole = parse(bytes, bytes.size(), limits);
  const Parsed by_bytes = parse(bytes, 1, limits);
  EXPECT_EQ(whole.status == 200, by_bytes.status == 200) << bytes.substr(0, 200);
  if (whole.status == 200) {
    EXPECT_EQ(whole.request.path, by_bytes.request.path);
    EXPECT_EQ(whole.request.body, by_bytes.request.body);
    EXPECT_EQ(whole.rest, by_bytes.rest);
  }
  return whole;
}

std::string with_head(std::string_view headers, std::string_view rest = "") {
  return "POST /p HTTP/1.1\r\nHost: x\r\n" + std::string(headers) + "\r\n" + std::string(rest);
}

TEST(RequestParser, ReadsARequest) {
  const Parsed parsed =
      parse("POST /v1/a%20b?x=%31&y HTTP/1.1\r\nHost: h\r\nX-Key:  some value \r\nContent-Length: 5\r\n\r\nhelloGET /");
  ASSERT_EQ(parsed.status, 200) << parsed.message;
  EXPECT_EQ(parsed.request.method, "POST");
  EXPECT_EQ(parsed.request.path, "/v1/a b");
  EXPECT_EQ(parsed.request.query, "x=%31&y");
  EXPECT_EQ(parsed.request.headers.get("x-key"), "some value");
  EXPECT_EQ(parsed.request.headers.get("absent"), "");
  EXPECT_EQ(parsed.request.body, "hello");
  EXPECT_EQ(parsed.request.minor_version, 1);
  EXPECT_TRUE(parsed.keep_alive);
  EXPECT_EQ(parsed.rest, 5u);
}

TEST(RequestParser, PutsChunksTogetherAndDropsTrailers) {
  const Parsed parsed = parse(with_head("Transfer-Encoding: chunked\r\n",
                                        "3\r\nabc\r\nA;ext=1\r\n0123456789\r\n0\r\nX-Trailer: t\r\nHost: y\r\n\r\nREST"));
  ASSERT_EQ(parsed.status, 200) << parsed.message;
  EXPECT_EQ(parsed.request.body, "abc0123456789");
  EXPECT_EQ(parsed.request.headers.find("X-Trailer"), nullptr);
  EXPECT_EQ(parsed.request.headers.get("Host"), "x");
  EXPECT_EQ(parsed.rest, 4u);
}

TEST(RequestParser, KeepsAliveByVersionAndWish) {
  EXPECT_TRUE(parse("GET / HTTP/1.1\r\nHost: x\r\n\r\n").keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade, Close\r\n\r\n").keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_TRUE(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
}

TEST(RequestParser, UnderstandsEveryFormOfTarget) {
  EXPECT_EQ(parse("GET http://h:1/a?b HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/a");
  EXPECT_EQ(parse("GET http://h:1/a?b HTTP/1.1\r\nHost: h\r\n\r\n").request.query, "b");
  EXPECT_EQ(parse("GET HTTPS://h HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/");
  EXPECT_EQ(parse("GET http://h?q HTTP/1.1\r\nHost: h\r\n\r\n").request.query, "q");
  EXPECT_EQ(parse("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "*");
  EXPECT_EQ(parse("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n").status, 200) << "empty lines before a request";
  EXPECT_EQ(parse("GET /%e2%82%ac HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/€");
}

TEST(RequestParser, RefusesWhatIsMalformed) {
  const std::vector<std::string> bad{
      "GET / HTTP/1.1\nHost: x\n\n\r\n\r\n",           // bare LF
      "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",       // in the headers
      "GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",  // bare CR
      "GET / HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n"s,   // NUL
      "GET / HTTP/1.1\r\nHost: x\r\nA\0: b\r\n\r\n"s,
      "GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n"s,
      "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",  // folded
      "GET / HTTP/1.1\r\nHost: x\r\nA:\r\n c\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n \r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",  // space before the colon
      "GET / HTTP/1.1\r\n Host: x\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
      "GET / HTTP/1.1\r\n\r\n",  // no Host
      "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
      "GET /\r\n\r\n",
      "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
      "GET / HTTX/1.1\r\nHost: x\r\n\r\n",
      "GET / HTTP/11\r\nHost: x\r\n\r\n",
      " GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      "G(T / HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET a HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET * HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /%4 HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /% HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /%0d%0a HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
      "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
  };
  for (const std::string& bytes : bad) EXPECT_EQ(parse(bytes).status, 400) << bytes;
}

TEST(RequestParser, RefusesEveryWayToSmuggle) {
  const std::vector<std::string> bad{
      with_head("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
      with_head("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n"),
      with_head("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"),
      with_head("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"),
      with_head("Content-Length: 3, 3\r\n", "abc"),
      with_head("Content-Length: +3\r\n", "abc"),
      with_head("Content-Length: -3\r\n", "abc"),
      with_head("Content-Length: 0x3\r\n", "abc"),
      with_head("Content-Length: 3 4\r\n", "abc"),
      with_head("Content-Length:\r\n", "abc"),
      with_head("Content-Length: 99999999999999999999999\r\n"),
      with_head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
      "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      with_head("Transfer-Encoding: chunked\r\n", "x\r\nabc\r\n0\r\n\r\n"),
      with_head("Transfer-Encoding: chunked\r\n", "-3\r\nabc\r\n0\r\n\r\n"),
      with_head("Transfer-Encoding: chunked\r\n", "3\r\nabcd\r\n0\r\n\r\n"),
      with_head("Transfer-Encoding: chunked\r\n", "3 3\r\nabc\r\n0\r\n\r\n"),
      with_head("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
      with_head("Transfer-Encoding: chunked\r\n", "3;" + std::string(300, 'e') + "\r\nabc\r\n0\r\n\r\n"),
      with_head("Transfer-Encoding: chunked\r\n", "0\r\nContent-Length: 3\r\n\r\n"),
      with_head("Transfer-Encoding: chunked\r\n", "0\r\nbad trailer\r\n\r\n"),
  };
  for (const std::string& bytes : bad) EXPECT_EQ(parse(bytes).status, 400) << bytes;
  for (const char* coding : {"gzip", "gzip, chunked", "chunked, gzip", "identity", "xchunked", "chunked;q=1",
                             "\x0b"
                             "chunked",
                             ""}) {
    const int status = parse(with_head("Transfer-Encoding: " + std::string(coding) + "\r\n", "0\r\n\r\n")).status;
    EXPECT_TRUE(status == 501 || status == 400) << coding << ": " << status;
  }
}

TEST(RequestParser, AnswersEachLimitWithItsStatus) {
  HttpLimits limits;
  limits.target_bytes = 100;
  limits.header_bytes = 1000;
  limits.header_count = 5;
  limits.body_bytes = 10;
  const auto status = [&](const std::string& bytes) { return parse(bytes, limits).status; };
  const auto target = [](size_t bytes) { return "GET /" + std::string(bytes - 1, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n"; };
  EXPECT_EQ(status(target(100)), 200);
  EXPECT_EQ(status(target(101)), 414);
  EXPECT_EQ(status("GET /" + std::string(100'000, 'a')), 414) << "a line without an end";
  EXPECT_EQ(status(std::string(100'000, 'A')), 414);
  const auto head = [](size_t bytes) {
    const std::string before = "GET / HTTP/1.1\r\nHost: x\r\nA: ", after = "\r\n\r\n";
    return before + std::string(bytes - before.size() - after.size(), 'b') + after;
  };
  EXPECT_EQ(status(head(1000)), 200);
  EXPECT_EQ(status(head(1001)), 431);
  EXPECT_EQ(status(head(10'000'000).substr(0, 5000)), 431) << "headers without an end";
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\nA: 2\r\nA: 3\r\nA: 4\r\n\r\n"), 200);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\nA: 2\r\nA: 3\r\nA: 4\r\nA: 5\r\n\r\n"), 431);
  EXPECT_EQ(status(with_head("Content-Length: 10\r\n", "0123456789")), 200);
  EXPECT_EQ(status(with_head("Content-Length: 11\r\n")), 413);
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  EXPECT_EQ(status(with_head(chunked, "5\r\nabcde\r\n5\r\nabcde\r\n0\r\n\r\n")), 200);
  EXPECT_EQ(status(with_head(chunked, "5\r\nabcde\r\n6\r\nabcdef\r\n0\r\n\r\n")), 413);
  EXPECT_EQ(status(with_head(chunked, "ffffffffffffffff\r\n")), 413);
  EXPECT_EQ(status(with_head(chunked, "0\r\nT: " + std::string(2000, 't'))), 431) << "trailers without an end";
  EXPECT_EQ(status(with_head(chunked, "1;" + std::string(2000, 't'))), 431) << "a chunk's line without an end";
}

TEST(RequestParser, RefusesWhatItDoesNotSpeak) {
  EXPECT_EQ(parse("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status, 505);
  EXPECT_EQ(parse("GET / HTTP/0.9\r\nHost: x\r\n\r\n").status, 505);
  EXPECT_EQ(parse(std::string(33, 'A') + " / HTTP/1.1\r\nHost: x\r\n\r\n").status, 501);
  EXPECT_EQ(parse(std::string(32, 'A') + " / HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
  EXPECT_EQ(parse("CONNECT h:1 HTTP/1.1\r\nHost: x\r\n\r\n").status, 405);
  EXPECT_EQ(parse(with_head("Expect: 200-ok\r\n")).status, 417);
  EXPECT_EQ(parse(with_head("Content-Encoding: gzip\r\nContent-Length: 1\r\n", "x")).status, 415);
  EXPECT_EQ(parse(with_head("Content-Encoding: identity\r\nContent-Length: 1\r\n", "x")).status, 200);
  EXPECT_EQ(parse("\x16\x03\x01\x02\x01\x01\xfc\x03\x03\r\n\r\n").status, 400) << "TLS to a port without it";
}

TEST(RequestParser, ClaimedLengthsCostNothing) {
  const HttpLimits limits;  // outlives the parser
  RequestParser parser(limits);
  const std::string head = with_head("Content-Length: 33554432\r\n");
  ASSERT_EQ(parser.feed(head), head.size());
  ASSERT_TRUE(parser.head_done());
  EXPECT_EQ(parser.feed("x"), 1u);
  EXPECT_LE(parser.request().body.capacity(), size_t{1} << 20);
}

}  // namespace
}  // namespace choral::serve
