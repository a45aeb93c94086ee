// Whom a request comes from when a proxy passed it on. What a header says of that is believed of the proxies alone that the
// server was told of (--trusted-proxies): X-Forwarded-For is read from its end, where the nearest proxy wrote, back to the first
// address that is none of theirs; whatever the client wrote before it counts for nothing. Other headers of proxies (Forwarded,
// X-Real-IP, Via) are never believed: they only show that the request did not begin here. Immutable; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "serve/http/message.h"
#include "serve/http/peer.h"

namespace choral::serve {

class TrustedProxies {
 public:
  TrustedProxies() = default;  // none
  // "10.0.0.0/8", "fd00::/8", an address, or "unix": whoever comes over the unix socket.
  static Result<TrustedProxies> make(const std::vector<std::string>& networks);

  // Says in the request, whose head was read, whom it comes from: HttpRequest's peer, payer, loopback and forwarded.
  void tell_client(const Peer& peer, HttpRequest& request) const;

 private:
  struct Network {
    IpAddress first;
    int bits;  // of the 128 that an address of it begins with
  };
  bool trusts(const IpAddress& address) const;
  bool trusts(const Peer& peer) const;

  std::vector<Network> networks_;
  bool unix_ = false;
};

}  // namespace choral::serve
