#include "serve/service/access_log.h"

#include <gtest/gtest.h>

namespace choral::serve {
namespace {

HttpRequest request() {
  HttpRequest r;
  r.method = "POST";
  r.path = "/v1/completions";
  r.peer = "127.0.0.1:5001";
  r.body = "a secret";
  return r;
}

TEST(AccessLog, NamesTheRequest) {
  HttpRequest r = request();
  r.ids.request = "mine";
  EXPECT_EQ(access_line(AccessLog::kText, {r, 200, 0.25}),
            "choral: 127.0.0.1:5001 POST /v1/completions 200 0.250 s request=mine");
  EXPECT_EQ(
      access_line(AccessLog::kJson, {r, 200, 0.25}),
      R"({"peer":"127.0.0.1:5001","method":"POST","path":"/v1/completions","request_id":"mine","status":200,"seconds":0.250000})");
}

TEST(AccessLog, NamesTheTrace) {
  HttpRequest r = request();
  r.ids = {.request = "mine", .trace = "aa", .span = "bb", .parent_span = "cc", .trace_flags = 1};
  EXPECT_EQ(access_line(AccessLog::kText, {r, 503, 0}),
            "choral: 127.0.0.1:5001 POST /v1/completions 503 0.000 s request=mine trace=aa span=bb parent=cc");
  EXPECT_EQ(access_line(AccessLog::kJson, {r, 503, 0}),
            R"({"peer":"127.0.0.1:5001","method":"POST","path":"/v1/completions","request_id":"mine","trace_id":"aa",)"
            R"("span_id":"bb","parent_span_id":"cc","status":503,"seconds":0.000000})");
}

TEST(AccessLog, NothingOfAClientsBreaksALine) {
  HttpRequest r = request();
  r.path = "/a\nchoral: \"forged\"" + std::string(1000, 'x');
  for (const auto form : {AccessLog::kText, AccessLog::kJson}) {
    const std::string line = access_line(form, {r, 404, 0});
    EXPECT_EQ(line.find('\n'), line.npos);
    EXPECT_LT(line.size(), 500u);
  }
  HttpRequest unread;
  unread.peer = "unix";
  EXPECT_EQ(access_line(AccessLog::kText, {unread, 400, 0}), "choral: unix - - 400 0.000 s");
}

}  // namespace
}  // namespace choral::serve
