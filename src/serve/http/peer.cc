#include "serve/http/peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>

namespace choral::serve {

namespace {

template <class Address>
std::string text_of(int family, const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(family, &address, text.data(), text.size());
  return text.data();
}

}  // namespace

Peer peer_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address);
    const std::string host = text_of(AF_INET, v4.sin_addr);
    return {fmt::format("{}:{}", host, ntohs(v4.sin_port)), (ntohl(v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET, true, host};
  }
  if (address->sa_family == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address);
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) != 0;
    const bool loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0 || (mapped && v6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
    in6_addr network = v6.sin6_addr;
    if (!mapped && !loopback) std::fill_n(network.s6_addr + 8, 8, uint8_t{0});
    return {fmt::format("[{}]:{}", text_of(AF_INET6, v6.sin6_addr), ntohs(v6.sin6_port)), loopback, true,
            text_of(AF_INET6, network)};
  }
  if (address->sa_family == AF_UNIX) return {"unix", true, false, "unix"};
  return {};
}

}  // namespace choral::serve
