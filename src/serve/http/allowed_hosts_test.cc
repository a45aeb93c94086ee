#include "serve/http/allowed_hosts.h"

#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

bool allows(const AllowedHosts& hosts, std::string host) {
  HttpRequest head;
  head.headers.add("Host", std::move(host));
  return hosts.allows(head);
}

AllowedHosts made(std::vector<std::string> names, bool is_loopback) {
  auto hosts = AllowedHosts::make(std::move(names), is_loopback);
  EXPECT_TRUE(hosts.ok()) << hosts.status().message();
  return *std::move(hosts);
}

TEST(AllowedHosts, OnLoopbackOnlyThisMachinesNames) {
  const AllowedHosts hosts = made({}, true);
  for (const char* good : {"localhost", "localhost:8000", "LocalHost:8000", "localhost.", "app.localhost:1", "127.0.0.1",
                           "127.0.0.1:8000", "127.8.8.8", "[::1]", "[::1]:8000", "[0:0::1]:8000"})
    EXPECT_TRUE(allows(hosts, good)) << good;
  for (const char* bad : {"evil.example",
                          "evil.example:8000",
                          "127.0.0.1.evil.example",
                          "localhost.evil.example",
                          "notlocalhost",
                          "evil.example.",
                          "128.0.0.1",
                          "0.0.0.0",
                          "[::]",
                          "[::2]:80",
                          "",
                          ":8000",
                          ".",
                          "localhost:80:80",
                          "localhost:x",
                          "localhost evil.example",
                          "[::1",
                          "[::1]x",
                          "[localhost]",
                          "::1",
                          "127.1",
                          "2130706433",
                          "localhost,evil.example",
                          "localhost\xc3\xa9"})
    EXPECT_FALSE(allows(hosts, bad)) << bad;
}

TEST(AllowedHosts, NamesThatWereGiven) {
  const AllowedHosts hosts = made({"api.example.com", "*.Example.org", "10.0.0.7", "2001:db8::7"}, true);
  for (const char* good : {"api.example.com", "API.example.com:8000", "a.example.org", "a.b.example.org.", "10.0.0.7:80",
                           "[2001:db8::7]:80", "localhost"})
    EXPECT_TRUE(allows(hosts, good)) << good;
  for (const char* bad : {"example.com", "x.api.example.com", "example.org", "badexample.org", "10.0.0.8", "[2001:db8::8]"})
    EXPECT_FALSE(allows(hosts, bad)) << bad;
}

TEST(AllowedHosts, ElsewhereAnyNameUnlessSomeWereGiven) {
  EXPECT_TRUE(allows(made({}, false), "api.example.com"));
  EXPECT_TRUE(allows(made({"*"}, true), "evil.example"));
  EXPECT_FALSE(allows(made({"api.example.com"}, false), "evil.example"));
  EXPECT_TRUE(allows(made({"api.example.com"}, false), "localhost")) << "a probe on the machine";
}

TEST(AllowedHosts, WhoIsNoBrowserIsNotAsked) {
  const AllowedHosts hosts = made({}, true);
  HttpRequest head;
  EXPECT_TRUE(hosts.allows(head)) << "HTTP/1.0";
  head.unix_socket = true;
  head.headers.add("Host", "anything");
  EXPECT_TRUE(hosts.allows(head));
}

bool allows_page(const AllowedHosts& hosts, std::string origin, std::string host = "127.0.0.1:8000") {
  HttpRequest head;
  head.headers.add("Host", std::move(host));
  head.headers.add("Origin", std::move(origin));
  return hosts.allows_origin(head);
}

TEST(AllowedHosts, PagesOfOtherSitesAreNotServed) {
  for (const bool is_loopback : {true, false}) {
    const AllowedHosts hosts = made({}, is_loopback);
    EXPECT_TRUE(hosts.allows_origin(HttpRequest())) << "no page";
    for (const char* good : {"http://localhost:3000", "http://127.0.0.1:8000", "https://app.localhost", "http://[::1]:1"})
      EXPECT_TRUE(allows_page(hosts, good)) << good;
    for (const char* bad : {"http://evil.example", "null", "", "evil.example", "http://", "http://127.0.0.1.evil.example",
                            "http://localhost@evil.example", "http://evil.example/127.0.0.1"})
      EXPECT_FALSE(allows_page(hosts, bad)) << bad;
  }
}

TEST(AllowedHosts, PagesOfNamesThatWereGivenAreServed) {
  const AllowedHosts hosts = made({"chat.example.com", "*.example.org"}, true);
  EXPECT_TRUE(allows_page(hosts, "https://chat.example.com"));
  EXPECT_TRUE(allows_page(hosts, "https://a.example.org:8443"));
  EXPECT_FALSE(allows_page(hosts, "https://example.com"));
  EXPECT_TRUE(allows_page(made({"*"}, true), "null"));
}

TEST(AllowedHosts, APageMayAskItsOwnServer) {
  const AllowedHosts hosts = made({}, false);
  EXPECT_TRUE(allows_page(hosts, "https://api.example.com:8443", "API.example.com:8443"));
  EXPECT_FALSE(allows_page(hosts, "https://api.example.com:8443", "api.example.com"));
}

TEST(AllowedHosts, AnOwnPageIsOfThisServerToTheLastByte) {
  const auto is_own = [](const char* origin, const char* host, bool tls = false) {
    HttpRequest head;
    head.headers = {{"Host", host}, {"Origin", origin}};
    head.tls = tls;
    return AllowedHosts::is_own_page(head);
  };
  EXPECT_TRUE(is_own("http://127.0.0.1:8000", "127.0.0.1:8000"));
  EXPECT_TRUE(is_own("http://LOCALHOST:8000", "localhost:8000"));
  EXPECT_TRUE(is_own("https://localhost", "localhost", true));
  EXPECT_FALSE(is_own("https://127.0.0.1:8000", "127.0.0.1:8000"));
  EXPECT_FALSE(is_own("http://localhost:3000", "localhost:8000"));
  EXPECT_FALSE(is_own("http://localhost:8000", "127.0.0.1:8000"));
  EXPECT_FALSE(is_own("null", "127.0.0.1:8000"));
  EXPECT_FALSE(is_own("http://", ""));
  EXPECT_FALSE(AllowedHosts::is_own_page(HttpRequest()));
}

TEST(AllowedHosts, NamesThatAreNoneAreRefused) {
  for (const char* bad : {"", "api.example.com:80", "http://api.example.com", "a b", "*.", "a*b", "[::1", "."}) {
    const auto hosts = AllowedHosts::make({bad}, true);
    ASSERT_FALSE(hosts.ok()) << bad;
    EXPECT_THAT(hosts.status().message(), HasSubstr("--allowed-hosts"));
  }
}

}  // namespace
}  // namespace choral::serve
