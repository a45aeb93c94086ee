#include "serve/http/response_head.h"

#include <gtest/gtest.h>

namespace choral::serve {
namespace {

std::string without_date(std::string head) {
  const size_t at = head.find("Date: ");
  return head.erase(at, head.find("\r\n", at) + 2 - at);
}

TEST(ResponseHead, SaysHowTheBodyEnds) {
  EXPECT_EQ(without_date(response_head(200, {{"A", "b"}}, {BodyEnd::kLength, 5, 1, true})),
            "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(without_date(response_head(200, {}, {BodyEnd::kChunks, 0, 1, true})),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(without_date(response_head(404, {}, {BodyEnd::kClose, 0, 0, false})),
            "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(without_date(response_head(204, {}, {BodyEnd::kNoBody, 0, 0, true})),
            "HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n");
}

TEST(ResponseHead, NoHeaderStartsALineOfItsOwn) {
  const Headers headers{
      {"X-Id", "a\r\nSet-Cookie: b"}, {"Bad Name", "c"}, {"", "d"}, {"content-length", "9"}, {"X-Nul", std::string("e\0f", 3)}};
  EXPECT_EQ(without_date(response_head(200, headers, {BodyEnd::kLength, 0, 1, true})),
            "HTTP/1.1 200 OK\r\nX-Id: a  Set-Cookie: b\r\nX-Nul: e f\r\nContent-Length: 0\r\n\r\n");
}

TEST(ResponseHead, WritesDates) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(1709164800), "Thu, 29 Feb 2024 00:00:00 GMT");
}

}  // namespace
}  // namespace choral::serve
