#include "serve/http/peer.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace choral::serve {
namespace {

Peer v6(const char* text) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(5001);
  EXPECT_EQ(::inet_pton(AF_INET6, text, &address.sin6_addr), 1);
  return peer_of(reinterpret_cast<const sockaddr*>(&address));
}

TEST(Peer, ACustomersAddressesAreOneHost) {
  EXPECT_EQ(v6("2001:db8:1:2:3:4:5:6").text, "[2001:db8:1:2:3:4:5:6]:5001");
  EXPECT_EQ(v6("2001:db8:1:2:3:4:5:6").host, "2001:db8:1:2::/64");
  EXPECT_EQ(v6("2001:db8:1:2::7").host, "2001:db8:1:2::/64");
  EXPECT_EQ(v6("2001:db8:1:3::7").host, "2001:db8:1:3::/64");
}

TEST(Peer, AMappedAddressIsOfIPv4) {
  EXPECT_EQ(v6("::ffff:192.0.2.1").text, "[::ffff:192.0.2.1]:5001");
  EXPECT_EQ(v6("::ffff:192.0.2.1").host, "192.0.2.1");
  EXPECT_TRUE(v6("::ffff:127.0.0.1").loopback);
}

TEST(Peer, AllAddressesOfThisMachineAreOneHost) {
  for (const char* here : {"::ffff:127.0.0.1", "::ffff:127.8.8.8", "::1"}) EXPECT_EQ(v6(here).host, kThisMachine);
}

}  // namespace
}  // namespace choral::serve
