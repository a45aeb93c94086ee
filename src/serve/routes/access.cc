#include "serve/routes/access.h"

#include "base/printable.h"
#include "serve/http/error_response.h"
#include "serve/routes/router.h"

namespace choral::serve {
namespace {

HttpResponse refused(std::string why, std::string code = "permission_denied") {
  return error_response({.status = 403, .message = std::move(why), .code = std::move(code)});
}

HttpResponse wrong_host(std::string_view host) {
  constexpr size_t kMostShown = 128;
  return refused(fmt::format("this server is not called {}: a web page may have sent this; --allowed-hosts gives it more names",
                             quoted(host, kMostShown)),
                 "host_not_allowed");
}

}  // namespace

std::optional<HttpResponse> check_access(const Service& service, const HttpRequest& head) {
  if (!service.allowed_hosts().allows(head)) return wrong_host(head.headers.get("Host"));
  const Access access = access_of(head);
  if (access == Access::kOpen) return std::nullopt;
  std::optional<KeyHolder> holder;
  if (service.asks_for_keys()) {
    holder = service.key_holder(head);
    if (!holder) {
      return error_response({.status = 401,
                             .message = "this server asks for an API key: send it as `Authorization: Bearer KEY`",
                             .code = "invalid_api_key"});
    }
  }
  if (access != Access::kAdmin || (holder && holder->role == KeyRole::kAdmin)) return std::nullopt;
  // Without an admin's key: whoever is on this machine, but no page in its browser.
  if (holder || !service.is_loopback()) return refused("adapters are changed with an admin's key (--admin-api-key)");
  if (head.headers.find("Origin") != nullptr) return refused("web pages may not change adapters");
  return std::nullopt;
}

}  // namespace choral::serve
