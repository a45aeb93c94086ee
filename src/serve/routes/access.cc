#include "serve/routes/access.h"

#include "serve/http/error_response.h"
#include "serve/routes/router.h"

namespace choral::serve {
namespace {

HttpResponse refused(std::string why) {
  return error_response({.status = 403, .message = std::move(why), .code = "permission_denied"});
}

}  // namespace

std::optional<HttpResponse> check_access(const Service& service, const HttpRequest& head) {
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
