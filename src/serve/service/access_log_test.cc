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

constexpr double kThen = 1764061811.123;  // 2025-11-25T09:10:11.123Z

AnsweredRequest answered(const HttpRequest& r, int status, double seconds, RequestNotes notes = {}, std::string key = {}) {
  return {.request = r,
          .status = status,
          .seconds = seconds,
          .begin_unix_s = kThen,
          .notes = std::move(notes),
          .key = std::move(key)};
}

TEST(AccessLog, NamesTheRequest) {
  HttpRequest r = request();
  r.ids.request = "mine";
  EXPECT_EQ(access_line(AccessLog::kText, answered(r, 200, 0.25)),
            "choral: 2025-11-25T09:10:11.123Z 127.0.0.1:5001 POST /v1/completions 200 0.250 s request=mine");
  EXPECT_EQ(access_line(AccessLog::kJson, answered(r, 200, 0.25)),
            R"({"time":"2025-11-25T09:10:11.123Z","peer":"127.0.0.1:5001","method":"POST","path":"/v1/completions",)"
            R"("request_id":"mine","status":200,"seconds":0.250000})");
}

TEST(AccessLog, SaysWhoUsedHowMuchOfWhat) {
  const HttpRequest r = request();
  const RequestNotes notes{.model = "pirate",
                           .adapters = {"pirate", "sql coder"},
                           .usage = Usage{.prompt_tokens = 7, .completion_tokens = 30, .cached_tokens = 4}};
  EXPECT_EQ(access_line(AccessLog::kText, answered(r, 200, 0.25, notes, "alice")),
            "choral: 2025-11-25T09:10:11.123Z 127.0.0.1:5001 POST /v1/completions 200 0.250 s key=alice model=pirate "
            "adapters=\"pirate,sql coder\" prompt_tokens=7 cached_tokens=4 completion_tokens=30");
  EXPECT_EQ(
      access_line(AccessLog::kJson, answered(r, 200, 0.25, notes, "alice")),
      R"({"time":"2025-11-25T09:10:11.123Z","peer":"127.0.0.1:5001","method":"POST","path":"/v1/completions","key":"alice",)"
      R"("model":"pirate","adapters":["pirate","sql coder"],"prompt_tokens":7,"cached_tokens":4,"completion_tokens":30,)"
      R"("status":200,"seconds":0.250000})");
}

TEST(AccessLog, SaysWhyARequestWasRefused) {
  const HttpRequest r = request();
  const RequestNotes notes{.reason = "invalid_argument: 'n' is 0"};
  EXPECT_EQ(
      access_line(AccessLog::kText, answered(r, 400, 0, notes)),
      "choral: 2025-11-25T09:10:11.123Z 127.0.0.1:5001 POST /v1/completions 400 0.000 s reason=\"invalid_argument: 'n' is 0\"");
  EXPECT_EQ(access_line(AccessLog::kJson, answered(r, 400, 0, notes)),
            R"({"time":"2025-11-25T09:10:11.123Z","peer":"127.0.0.1:5001","method":"POST","path":"/v1/completions",)"
            R"("reason":"invalid_argument: 'n' is 0","status":400,"seconds":0.000000})");
}

TEST(AccessLog, NamesTheTrace) {
  HttpRequest r = request();
  r.ids = {.request = "mine", .trace = "aa", .span = "bb", .parent_span = "cc", .trace_flags = 1};
  EXPECT_EQ(
      access_line(AccessLog::kText, answered(r, 503, 0)),
      "choral: 2025-11-25T09:10:11.123Z 127.0.0.1:5001 POST /v1/completions 503 0.000 s request=mine trace=aa span=bb parent=cc");
  EXPECT_EQ(access_line(AccessLog::kJson, answered(r, 503, 0)),
            R"({"time":"2025-11-25T09:10:11.123Z","peer":"127.0.0.1:5001","method":"POST","path":"/v1/completions",)"
            R"("request_id":"mine","trace_id":"aa","span_id":"bb","parent_span_id":"cc","status":503,"seconds":0.000000})");
}

TEST(AccessLog, NothingOfAClientsBreaksALine) {
  HttpRequest r = request();
  r.path = "/a\nchoral: \"forged\"" + std::string(1000, 'x');
  RequestNotes notes{.model = "m\nchoral: \"forged\"" + std::string(1000, 'x'), .reason = "code: a\x1b[2J b\n"};
  notes.adapters.assign(1000, "a\nb");
  for (const auto form : {AccessLog::kText, AccessLog::kJson}) {
    const std::string line = access_line(form, answered(r, 404, 0, notes));
    EXPECT_EQ(line.find_first_of("\n\x1b"), line.npos);
    EXPECT_LT(line.size(), 1000u);
  }
  HttpRequest unread;
  unread.peer = "unix";
  EXPECT_EQ(access_line(AccessLog::kText, answered(unread, 400, 0)), "choral: 2025-11-25T09:10:11.123Z unix - - 400 0.000 s");
}

}  // namespace
}  // namespace choral::serve
