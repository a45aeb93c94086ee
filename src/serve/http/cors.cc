#include "serve/http/cors.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/printable.h"
#include "serve/http/allowed_hosts.h"
#include "serve/http/peer.h"

namespace choral::serve {
namespace {

constexpr std::string_view kBehindScheme = "://";

// "https://example.com:8443", as browsers write it; empty: it is no such.
std::string origin_of(std::string_view text) {
  const size_t scheme = text.find(kBehindScheme);
  if (scheme == text.npos || scheme == 0) return "";
  const bool good = std::all_of(text.begin(), text.begin() + static_cast<ptrdiff_t>(scheme),
                                [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+'; });
  return good && !host_name(text.substr(scheme + kBehindScheme.size())).empty() ? lower(std::string(text)) : "";
}

bool is_of_this_machine(const std::string& origin) {
  const std::string name = host_name(std::string_view(origin).substr(origin.find(kBehindScheme) + kBehindScheme.size()));
  if (name == "localhost" || name.ends_with(".localhost")) return true;
  const auto address = parse_ip(name);
  return address && is_loopback(*address);
}

}  // namespace

Result<Cors> Cors::make(const std::vector<std::string>& origins) {
  Cors cors;
  for (const auto& given : origins) {
    if (given == "*") {
      cors.any_ = true;
    } else if (given == "localhost") {
      cors.local_ = true;
    } else if (std::string origin = origin_of(given); !origin.empty()) {
      cors.origins_.push_back(std::move(origin));
    } else {
      return invalid_argument(
          "--cors-origins {}: give origins such as https://app.example.com, localhost for pages of this machine, or * for any",
          quoted(std::string_view(given)));
    }
  }
  return cors;
}

bool Cors::allows(const HttpRequest& head) const {
  const std::string* const given = head.headers.find("Origin");
  if (given == nullptr) return false;
  if (any_) return true;
  const std::string origin = origin_of(*given);
  if (origin.empty()) return false;  // "null", which any page can have
  return (local_ && is_of_this_machine(origin)) || std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

bool Cors::is_preflight(const HttpRequest& head) const {
  return head.method == "OPTIONS" && head.headers.find("Access-Control-Request-Method") != nullptr && allows(head);
}

HttpResponse Cors::preflight_answer(const HttpRequest& head) const {
  HttpResponse response{.status = 204};
  response.headers.add("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE, OPTIONS");
  // Names alone come back, so that a client's own headers do no harm: what a page may say here is what any program may.
  const std::string_view wanted = head.headers.get("Access-Control-Request-Headers");
  const bool is_list = !wanted.empty() && std::all_of(wanted.begin(), wanted.end(), [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == ',' || c == ' ';
  });
  response.headers.add("Access-Control-Allow-Headers", is_list ? std::string(wanted) : "Authorization, Content-Type, X-Api-Key");
  response.headers.add("Access-Control-Max-Age", "600");
  return response;
}

void Cors::add_headers(const HttpRequest& head, Headers& headers) const {
  if (!any_ && !local_ && origins_.empty()) return;
  headers.add("Vary", "Origin");
  if (!allows(head)) return;
  headers.add("Access-Control-Allow-Origin", any_ ? "*" : std::string(head.headers.get("Origin")));
  headers.add("Access-Control-Expose-Headers", "X-Request-Id, X-Choral-Adapter, X-Choral-Warnings, Retry-After");
}

}  // namespace choral::serve
