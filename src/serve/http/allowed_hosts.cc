#include "serve/http/allowed_hosts.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "base/ascii.h"
#include "base/printable.h"
#include "serve/http/peer.h"

namespace choral::serve {
namespace {

constexpr size_t kMostNameBytes = 253;  // of DNS

bool is_name_char(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '.' || c == '_'; }

bool is_this_machine(const std::string& name) {
  if (name == "localhost" || name.ends_with(".localhost")) return true;
  const auto address = parse_ip(name);
  return address && is_loopback(*address);
}

}  // namespace

std::string host_name(std::string_view host) {
  std::string name;
  std::string_view rest;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == host.npos) return "";
    name = host.substr(1, end - 1);
    rest = host.substr(end + 1);
    in6_addr address{};
    if (::inet_pton(AF_INET6, name.c_str(), &address) != 1) return "";
  } else {
    const size_t end = std::min(host.find(':'), host.size());
    name = host.substr(0, end);
    rest = host.substr(end);
  }
  const bool is_port = rest.empty() || (rest.front() == ':' && std::all_of(rest.begin() + 1, rest.end(), is_digit));
  if (!is_port) return "";
  name = lower(std::move(name));
  if (host.starts_with('[')) return name;
  if (name.ends_with('.')) name.pop_back();
  const bool good = name.size() <= kMostNameBytes && std::all_of(name.begin(), name.end(), is_name_char);
  return good ? name : "";
}

Result<AllowedHosts> AllowedHosts::make(std::vector<std::string> names, bool is_loopback) {
  AllowedHosts made;
  made.any_ = names.empty() && !is_loopback;
  for (const auto& name : names) {
    if (name == "*") {
      made.any_ = made.any_origin_ = true;
      continue;
    }
    const bool is_suffix = name.starts_with("*.");
    in6_addr address{};  // its brackets may be left out
    const bool is_v6 = ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
    const std::string known = host_name(is_v6 ? "[" + name + "]" : is_suffix ? name.substr(2) : name);
    if (known.empty() || (!is_v6 && !name.starts_with('[') && name.find(':') != name.npos)) {
      return invalid_argument(
          "--allowed-hosts {}: give names without a port, such as api.example.com or *.example.com, or * for any", quoted(name));
    }
    made.names_.push_back(is_suffix ? "." + known : known);
  }
  return made;
}

bool AllowedHosts::is_known(const std::string& name) const {
  if (name.empty()) return false;
  return is_this_machine(name) || std::any_of(names_.begin(), names_.end(), [&](const std::string& known) {
           return known.starts_with('.') ? name.ends_with(known) : name == known;
         });
}

bool AllowedHosts::allows(const HttpRequest& head) const {
  if (any_ || head.unix_socket) return true;
  const std::string* const host = head.headers.find("Host");
  return host == nullptr || is_known(host_name(*host));  // HTTP/1.0 may have none, and no browser speaks it
}

bool AllowedHosts::allows_origin(const HttpRequest& head) const {
  constexpr std::string_view kBehindScheme = "://";
  const std::string* const origin = head.headers.find("Origin");
  if (origin == nullptr || any_origin_) return true;
  const size_t scheme = origin->find(kBehindScheme);
  if (scheme == origin->npos) return false;  // "null", which any page can have
  const std::string_view site = std::string_view(*origin).substr(scheme + kBehindScheme.size());
  const std::string name = host_name(site);
  return is_known(name) || (!name.empty() && equal_ignoring_case(site, head.headers.get("Host")));
}

bool AllowedHosts::is_own_page(const HttpRequest& head) {
  const std::string* const host = head.headers.find("Host");
  return host != nullptr && !host->empty() &&
         equal_ignoring_case(head.headers.get("Origin"), (head.tls ? "https://" : "http://") + *host);
}

}  // namespace choral::serve
