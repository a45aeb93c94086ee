// Who is at the other end of a socket, as text. Pure.
#pragma once

#include <sys/socket.h>

#include <string>

namespace choral::serve {

struct Peer {
  std::string text = "unknown";  // "127.0.0.1:5001", "[::1]:5001", "unix"
  bool loopback = false;         // this machine
  bool tcp = false;
  std::string host = "unknown";  // without the port: who it is among others. Of IPv6 a customer's whole network: "2001:db8:1:2::"
};

Peer peer_of(const sockaddr* address);

}  // namespace choral::serve
