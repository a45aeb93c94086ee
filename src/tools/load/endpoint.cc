#include "tools/load/endpoint.h"

#include <charconv>

#include "base/printable.h"

namespace choral::tools {
namespace {

constexpr size_t kMaxUnixPath = 107;  // sockaddr_un
constexpr size_t kMaxUrl = 2048;

bool is_plain(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 0x7F) return false;
  }
  return true;
}

bool is_port(std::string_view text) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

Status wrong(std::string_view url, std::string_view what) {
  return invalid_argument("{}: {}; write http://HOST:PORT, https://HOST:PORT or unix:/PATH", quoted(url), what);
}

}  // namespace

std::string Endpoint::host_header() const {
  if (!unix_path.empty()) return "localhost";
  const bool v6 = host.find(':') != host.npos;
  return (v6 ? "[" + host + "]" : host) + (port == (is_tls ? "443" : "80") ? "" : ":" + port);
}

std::string Endpoint::to_string() const {
  if (!unix_path.empty()) return "unix:" + unix_path;
  return (is_tls ? "https://" : "http://") + host_header();
}

Result<Endpoint> parse_endpoint(std::string_view url) {
  if (url.size() > kMaxUrl) return wrong(url.substr(0, 100), "the address is too long");
  Endpoint out;
  if (url.starts_with("unix:")) {
    out.unix_path = url.substr(5);
    if (out.unix_path.starts_with("//")) out.unix_path.erase(0, 2);
    if (out.unix_path.empty()) return wrong(url, "the socket's path is missing");
    if (out.unix_path.size() > kMaxUnixPath || out.unix_path.find('\0') != out.unix_path.npos)
      return wrong(url, "no socket has such a path");
    return out;
  }
  if (!is_plain(url)) return wrong(url, "there are spaces or bytes that no address has");
  std::string_view rest = url;
  if (rest.starts_with("http://")) rest.remove_prefix(7);
  if (url.starts_with("https://")) {
    rest.remove_prefix(8);
    out.is_tls = true;
    out.port = "443";
  }
  if (rest.find("://") != rest.npos) return wrong(url, "this is not HTTP");
  if (rest.find_first_of("?#") != rest.npos) return wrong(url, "an address has no query");
  const size_t slash = rest.find('/');
  std::string_view place = rest.substr(0, slash);
  std::string_view prefix = slash == rest.npos ? "" : rest.substr(slash);
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (prefix.ends_with("/v1")) prefix.remove_suffix(3);
  out.prefix = prefix;
  if (place.find('@') != place.npos) return wrong(url, "a key is given with --api-key, not in the address");
  std::string_view port;
  if (place.starts_with('[')) {
    const size_t end = place.find(']');
    if (end == place.npos) return wrong(url, "the bracket has no end");
    out.host = place.substr(1, end - 1);
    port = place.substr(end + 1);
  } else {
    const size_t colon = place.find(':');
    out.host = place.substr(0, colon);
    port = colon == place.npos ? "" : place.substr(colon);
  }
  if (out.host.empty()) return wrong(url, "the host is missing");
  if (!port.empty()) {
    if (port.front() != ':' || !is_port(port.substr(1))) return wrong(url, "the port is not a number from 1 to 65535");
    out.port = port.substr(1);
  }
  return out;
}

}  // namespace choral::tools
