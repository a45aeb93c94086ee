#include "serve/http/peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace choral::serve {
namespace {

constexpr IpAddress kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 0};
constexpr IpAddress kLoopbackV6{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr size_t kV4At = 12;      // where the bytes of IPv4 begin
constexpr size_t kNetworkAt = 8;  // and where those behind a network of IPv6 do

IpAddress mapped(const in_addr& v4) {
  IpAddress out = kMapped;
  std::memcpy(&out[kV4At], &v4, sizeof v4);
  return out;
}

IpAddress from(const in6_addr& v6) {
  IpAddress out;
  std::memcpy(out.data(), &v6, out.size());
  return out;
}

}  // namespace

std::optional<IpAddress> parse_ip(std::string_view text) {
  const std::string whole(text);
  in_addr v4{};
  if (::inet_pton(AF_INET, whole.c_str(), &v4) == 1) return mapped(v4);
  in6_addr v6{};
  if (::inet_pton(AF_INET6, whole.c_str(), &v6) == 1) return from(v6);
  return std::nullopt;
}

std::string ip_text(const IpAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool v4 = is_v4(address);
  ::inet_ntop(v4 ? AF_INET : AF_INET6, &address[v4 ? kV4At : 0], text.data(), text.size());
  return text.data();
}

bool is_v4(const IpAddress& address) { return std::equal(kMapped.begin(), kMapped.begin() + kV4At, address.begin()); }

bool is_loopback(const IpAddress& address) {
  return address == kLoopbackV6 || (is_v4(address) && address[kV4At] == IN_LOOPBACKNET);
}

Peer peer_of(const sockaddr* address) {
  if (address->sa_family == AF_UNIX) return {.text = "unix", .loopback = true, .tcp = false, .host = std::string(kThisMachine)};
  Peer peer;
  if (address->sa_family == AF_INET) {
    const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address);
    peer.address = mapped(v4.sin_addr);
    peer.text = fmt::format("{}:{}", ip_text(*peer.address), ntohs(v4.sin_port));
  } else if (address->sa_family == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address);
    peer.address = from(v6.sin6_addr);
    peer.text = fmt::format("[{}{}]:{}", is_v4(*peer.address) ? "::ffff:" : "", ip_text(*peer.address), ntohs(v6.sin6_port));
  } else {
    return peer;
  }
  peer.loopback = is_loopback(*peer.address);
  peer.tcp = true;
  peer.host = host_of(*peer.address);
  return peer;
}

std::string host_of(const IpAddress& address) {
  if (is_loopback(address)) return std::string(kThisMachine);
  if (is_v4(address)) return ip_text(address);
  IpAddress network = address;
  std::fill(network.begin() + kNetworkAt, network.end(), uint8_t{0});
  return ip_text(network) + "/64";
}

}  // namespace choral::serve
