#include "serve/http/allowed_hosts.h"

#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

bool allows(const AllowedHosts& hosts, std::string host) {
  HttpRequest head;
  head.peer = "127.0.0.1:5001";
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
  head.peer = "127.0.0.1:5001";
  EXPECT_TRUE(hosts.allows(head)) << "HTTP/1.0";
  head.peer = "unix";
  head.headers.add("Host", "anything");
  EXPECT_TRUE(hosts.allows(head));
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
