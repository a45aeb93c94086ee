#include "serve/http/trusted_proxies.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/ascii.h"
#include "base/printable.h"

namespace choral::serve {
namespace {

constexpr int kBits = 128, kV4Bits = 32;
constexpr std::string_view kForwardedFor = "X-Forwarded-For";
constexpr std::array<std::string_view, 4> kOfProxies{kForwardedFor, "Forwarded", "X-Real-IP", "Via"};

bool begin_alike(const IpAddress& a, const IpAddress& b, int bits) {
  const auto bytes = bits / 8;
  if (!std::equal(a.begin(), a.begin() + bytes, b.begin())) return false;
  return bits % 8 == 0 || (a[bytes] ^ b[bytes]) >> (8 - bits % 8) == 0;
}

// "203.0.113.7", "203.0.113.7:5001", "2001:db8::1" or "[2001:db8::1]:5001".
std::optional<IpAddress> address_of_hop(std::string_view hop) {
  if (hop.starts_with('[')) return parse_ip(hop.substr(1, hop.find(']') - 1));
  const size_t colon = hop.find(':');
  return parse_ip(colon != hop.npos && colon == hop.rfind(':') ? hop.substr(0, colon) : hop);
}

// Of all fields of that name, the last one first.
std::vector<std::string_view> hops_from_the_end(const Headers& headers) {
  std::vector<std::string_view> hops;
  for (const auto& field : headers) {
    if (!equal_ignoring_case(field.name, kForwardedFor)) continue;
    for (std::string_view rest = field.value;;) {
      const size_t comma = rest.find(',');
      hops.push_back(trimmed(rest.substr(0, comma)));
      if (comma == rest.npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  std::reverse(hops.begin(), hops.end());
  return hops;
}

}  // namespace

Result<TrustedProxies> TrustedProxies::make(const std::vector<std::string>& networks) {
  TrustedProxies made;
  for (const auto& network : networks) {
    if (network == "unix") {
      made.unix_ = true;
      continue;
    }
    const size_t slash = network.find('/');
    const auto first = parse_ip(network.substr(0, slash));
    const int most = first && is_v4(*first) && network.find(':') == network.npos ? kV4Bits : kBits;
    int bits = most;
    if (slash != network.npos) {
      const char* const end = network.data() + network.size();
      const auto read = std::from_chars(network.data() + slash + 1, end, bits);
      if (read.ec != std::errc() || read.ptr != end) bits = -1;
    }
    if (!first || bits < 0 || bits > most) {
      return invalid_argument(
          "--trusted-proxies {}: give addresses or networks, such as 10.0.0.0/8, 127.0.0.1 or fd00::/8, or unix for those that "
          "come over the unix socket",
          quoted(network));
    }
    made.networks_.push_back({*first, bits + kBits - most});
  }
  return made;
}

bool TrustedProxies::trusts(const IpAddress& address) const {
  return std::any_of(networks_.begin(), networks_.end(), [&](const Network& n) { return begin_alike(address, n.first, n.bits); });
}

bool TrustedProxies::trusts(const Peer& peer) const { return peer.address ? trusts(*peer.address) : unix_ && !peer.tcp; }

void TrustedProxies::tell_client(const Peer& peer, HttpRequest& request) const {
  request.forwarded = std::any_of(kOfProxies.begin(), kOfProxies.end(),
                                  [&](std::string_view name) { return request.headers.find(name) != nullptr; });
  if (!trusts(peer)) return;
  request.forwarded = true;  // whether the proxy says so or not
  std::optional<IpAddress> client;
  for (const auto hop : hops_from_the_end(request.headers)) {
    const auto address = address_of_hop(hop);
    if (!address) break;
    client = address;
    if (!trusts(*address)) break;
  }
  if (!client) return;
  request.peer = ip_text(*client);
  request.payer = host_of(*client);
  request.loopback = is_loopback(*client);
}

}  // namespace choral::serve
