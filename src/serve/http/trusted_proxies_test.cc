#include "serve/http/trusted_proxies.h"

#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

TrustedProxies made(const std::vector<std::string>& networks) {
  auto proxies = TrustedProxies::make(networks);
  EXPECT_TRUE(proxies.ok()) << proxies.status().message();
  return *std::move(proxies);
}

Peer peer(const std::string& address) {
  if (address == "unix") return {.text = "unix", .loopback = true, .tcp = false, .host = std::string(kThisMachine)};
  const auto ip = parse_ip(address);
  EXPECT_TRUE(ip) << address;
  return {.text = address + ":5001", .loopback = is_loopback(*ip), .tcp = true, .host = host_of(*ip), .address = ip};
}

// As the transport has it before the head is read.
HttpRequest told(const TrustedProxies& proxies, const Peer& from, Headers headers) {
  HttpRequest request;
  request.peer = from.text;
  request.payer = from.host;
  request.loopback = from.loopback;
  request.headers = std::move(headers);
  proxies.tell_client(from, request);
  return request;
}

TEST(TrustedProxies, NobodyElseIsBelieved) {
  for (const auto& proxies : {TrustedProxies(), made({"10.0.0.0/8", "unix"})}) {
    const HttpRequest request = told(proxies, peer("192.0.2.1"), {{"X-Forwarded-For", "127.0.0.1"}});
    EXPECT_EQ(request.peer, "192.0.2.1:5001");
    EXPECT_EQ(request.payer, "192.0.2.1");
    EXPECT_FALSE(request.loopback);
    EXPECT_TRUE(request.forwarded);
  }
}

TEST(TrustedProxies, WhatProxiesWriteShowsThem) {
  for (const char* name : {"x-forwarded-for", "Forwarded", "X-Real-IP", "Via"}) {
    const HttpRequest request = told(TrustedProxies(), peer("127.0.0.1"), {{name, ""}});
    EXPECT_TRUE(request.forwarded) << name;
    EXPECT_TRUE(request.loopback) << "the peer, whoever stands behind it";
  }
  EXPECT_FALSE(told(TrustedProxies(), peer("127.0.0.1"), {{"X-Forwarded-Host", "x"}}).forwarded);
  EXPECT_TRUE(told(made({"127.0.0.1"}), peer("127.0.0.1"), {}).forwarded) << "one that says nothing";
}

TEST(TrustedProxies, TheNearestStrangerIsTheClient) {
  const TrustedProxies proxies = made({"10.0.0.0/8", "2001:db8::/32"});
  const auto client = [&](Headers headers) { return told(proxies, peer("10.1.2.3"), std::move(headers)); };
  EXPECT_EQ(client({{"X-Forwarded-For", "203.0.113.7"}}).peer, "203.0.113.7");
  EXPECT_EQ(client({{"X-Forwarded-For", "2001:db9:1:2::7"}}).payer, "2001:db9:1:2::/64");
  EXPECT_EQ(client({{"X-Forwarded-For", "127.0.0.1, 203.0.113.7"}}).peer, "203.0.113.7") << "what the client wrote itself";
  EXPECT_EQ(client({{"X-Forwarded-For", "203.0.113.7 ,10.9.9.9,2001:db8::5"}}).peer, "203.0.113.7");
  EXPECT_EQ(client({{"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-For", "203.0.113.7"}}).peer, "203.0.113.7");
  EXPECT_EQ(client({{"X-Forwarded-For", "203.0.113.7:61000"}}).peer, "203.0.113.7");
  EXPECT_EQ(client({{"X-Forwarded-For", "[2a00::7]:61000"}}).peer, "2a00::7");
  EXPECT_EQ(client({{"X-Forwarded-For", "10.0.0.1, 10.0.0.2"}}).peer, "10.0.0.1") << "a client of their own network";
  EXPECT_EQ(client({{"X-Forwarded-For", "203.0.113.7, unknown, 10.0.0.2"}}).peer, "10.0.0.2") << "nothing before it counts";
  for (const char* nonsense : {"", ",", "unknown", "203.0.113", "1.2.3.4.5", "[::1", "localhost"})
    EXPECT_EQ(client({{"X-Forwarded-For", nonsense}}).peer, nonsense == std::string("[::1") ? "::1" : "10.1.2.3:5001")
        << nonsense;
  EXPECT_EQ(client({{"Forwarded", "for=203.0.113.7"}, {"X-Real-IP", "203.0.113.7"}}).peer, "10.1.2.3:5001");
  EXPECT_TRUE(client({{"X-Forwarded-For", "127.0.0.1"}}).loopback);
}

TEST(TrustedProxies, OverTheUnixSocket) {
  const Headers headers{{"X-Forwarded-For", "203.0.113.7"}};
  EXPECT_EQ(told(made({"unix"}), peer("unix"), headers).peer, "203.0.113.7");
  EXPECT_EQ(told(made({"127.0.0.1"}), peer("unix"), headers).peer, "unix");
}

TEST(TrustedProxies, NetworksEndInTheMiddleOfAByte) {
  const auto trusts = [](const char* network, const char* address) { return told(made({network}), peer(address), {}).forwarded; };
  EXPECT_TRUE(trusts("172.16.0.0/12", "172.31.255.255"));
  EXPECT_FALSE(trusts("172.16.0.0/12", "172.32.0.0"));
  EXPECT_TRUE(trusts("0.0.0.0/0", "203.0.113.7"));
  EXPECT_FALSE(trusts("0.0.0.0/0", "2a00::7")) << "of IPv4 alone";
  EXPECT_TRUE(trusts("::/0", "203.0.113.7"));
  EXPECT_TRUE(trusts("10.0.0.1", "::ffff:10.0.0.1")) << "one address, written in two ways";
  EXPECT_TRUE(trusts("2001:db8::/33", "2001:db8:7fff::1"));
  EXPECT_FALSE(trusts("2001:db8::/33", "2001:db8:8000::1"));
}

TEST(TrustedProxies, WhatIsNoNetworkIsRefused) {
  for (const char* bad :
       {"", "proxy.example.com", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.0/8x", "::/129", "10.0/8"}) {
    const auto proxies = TrustedProxies::make({bad});
    ASSERT_FALSE(proxies.ok()) << bad;
    EXPECT_THAT(proxies.status().message(), HasSubstr("--trusted-proxies"));
  }
}

}  // namespace
}  // namespace choral::serve
