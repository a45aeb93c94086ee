#include "serve/http/peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <array>

namespace choral::serve {

Peer peer_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return {fmt::format("{}:{}", text.data(), ntohs(v4.sin_port)), (ntohl(v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET, true};
  }
  if (address->sa_family == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address);
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) != 0;
    const bool loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0 || (mapped && v6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return {fmt::format("[{}]:{}", text.data(), ntohs(v6.sin6_port)), loopback, true};
  }
  if (address->sa_family == AF_UNIX) return {"unix", true, false};
  return {};
}

}  // namespace choral::serve
