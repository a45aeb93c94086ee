#include "serve/http/cors.h"

#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

Cors made(const std::vector<std::string>& origins) {
  auto cors = Cors::make(origins);
  EXPECT_TRUE(cors.ok()) << cors.status().message();
  return *std::move(cors);
}

HttpRequest from(std::string origin, std::string method = "POST") {
  HttpRequest head;
  head.method = std::move(method);
  head.headers.add("Origin", std::move(origin));
  return head;
}

TEST(Cors, AllowsWhatIsNamedAndNothingElse) {
  const Cors cors = made({"https://App.example.com", "http://[::1]:5173"});
  EXPECT_TRUE(cors.allows(from("https://app.example.com")));
  EXPECT_TRUE(cors.allows(from("http://[::1]:5173")));
  for (const char* bad : {"http://app.example.com", "https://app.example.com:1", "https://app.example.com.evil.example", "null",
                          "", "https://app.example.com/", "https://evil.example#https://app.example.com", "://app.example.com"})
    EXPECT_FALSE(cors.allows(from(bad))) << bad;
  EXPECT_FALSE(cors.allows(HttpRequest())) << "no page sent it";
  EXPECT_FALSE(Cors().allows(from("https://app.example.com")));
}

TEST(Cors, OriginsAreChecked) {
  for (const char* bad : {"example.com", "https://", "https://a b", "", "javascript", "*.example.com"}) {
    const auto cors = Cors::make({bad});
    EXPECT_EQ(cors.status().code(), Code::kInvalidArgument) << bad;
    EXPECT_THAT(cors.status().message(), HasSubstr("--cors-origins"));
  }
}

TEST(Cors, HeadersAreForPagesThatMay) {
  const Cors cors = made({"https://app.example.com"});
  Headers good, bad, none;
  cors.add_headers(from("https://app.example.com"), good);
  EXPECT_EQ(good.get("Access-Control-Allow-Origin"), "https://app.example.com");
  EXPECT_EQ(good.find("Access-Control-Allow-Credentials"), nullptr);
  cors.add_headers(from("https://evil.example"), bad);
  EXPECT_EQ(bad.find("Access-Control-Allow-Origin"), nullptr);
  EXPECT_EQ(bad.get("Vary"), "Origin");
  Cors().add_headers(from("https://app.example.com"), none);
  EXPECT_TRUE(none.empty());
}

TEST(Cors, APreflightTakesNoHeaderThatIsNoName) {
  const Cors cors = made({"*"});
  HttpRequest head = from("https://any.example", "OPTIONS");
  EXPECT_FALSE(cors.is_preflight(head));
  head.headers.add("Access-Control-Request-Method", "POST");
  EXPECT_TRUE(cors.is_preflight(head));
  EXPECT_THAT(std::string(cors.preflight_answer(head).headers.get("Access-Control-Allow-Headers")), HasSubstr("Authorization"));
  head.headers.add("Access-Control-Request-Headers", "x-a, x_b");
  EXPECT_EQ(cors.preflight_answer(head).headers.get("Access-Control-Allow-Headers"), "x-a, x_b");
  head.headers.set("Access-Control-Request-Headers", "x\"y");
  EXPECT_THAT(std::string(cors.preflight_answer(head).headers.get("Access-Control-Allow-Headers")), HasSubstr("Authorization"));
}

}  // namespace
}  // namespace choral::serve
