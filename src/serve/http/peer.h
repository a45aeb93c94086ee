// Who is at the other end of a socket: an address, as text too, and the name that shares are counted under. Pure.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace choral::serve {

// Of IPv6; one of IPv4 stands in it as ::ffff:a.b.c.d, so that both ways to write it are one.
using IpAddress = std::array<uint8_t, 16>;

std::optional<IpAddress> parse_ip(std::string_view text);  // "127.0.0.1", "::1"
std::string ip_text(const IpAddress& address);             // the same, "127.0.0.1" for one of IPv4
bool is_v4(const IpAddress& address);
bool is_loopback(const IpAddress& address);

// Who an address is where clients are told apart: one of IPv4 itself, of IPv6 the network of 64 bits that one client is given as
// a whole, and this machine with all its addresses as one.
inline constexpr std::string_view kThisMachine = "this machine";
std::string host_of(const IpAddress& address);

struct Peer {
  std::string text = "unknown";  // "127.0.0.1:5001", "[::1]:5001", "unix"
  bool loopback = false;         // this machine
  bool tcp = false;
  std::string host = "unknown";           // who it is among others: host_of(), or this machine
  std::optional<IpAddress> address = {};  // of TCP
};

Peer peer_of(const sockaddr* address);

}  // namespace choral::serve
