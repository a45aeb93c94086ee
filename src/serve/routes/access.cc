#include "serve/routes/access.h"

#include "base/printable.h"
#include "serve/http/error_response.h"
#include "serve/openai/adapter_form.h"
#include "serve/routes/router.h"

namespace choral::serve {
namespace {

HttpResponse refused(std::string why, std::string code = "permission_denied") {
  return error_response({.status = 403, .message = std::move(why), .code = std::move(code)});
}

constexpr size_t kMostShown = 128;

HttpResponse wrong_host(std::string_view host) {
  return refused(fmt::format("this server is not called {}: a web page may have sent this; --allowed-hosts gives it more names",
                             quoted(host, kMostShown)),
                 "host_not_allowed");
}

HttpResponse wrong_origin(std::string_view origin) {
  return refused(fmt::format("a web page of {} sent this (Origin), and pages of other sites may not use this server; "
                             "--cors-origins names the sites whose pages may, --allowed-hosts more names of this server",
                             quoted(origin, kMostShown)),
                 "origin_not_allowed");
}

// "application/json; charset=utf-8", or of another form that is JSON: "application/vnd.x+json".
bool is_json(std::string_view content_type) {
  std::string kind(content_type.substr(0, content_type.find(';')));
  while (kind.ends_with(' ')) kind.pop_back();
  constexpr std::string_view kJson = "application/json", kForm = "application/", kSuffix = "+json";
  if (equal_ignoring_case(kind, kJson)) return true;
  return kind.size() > kForm.size() + kSuffix.size() &&
         equal_ignoring_case(std::string_view(kind).substr(0, kForm.size()), kForm) &&
         equal_ignoring_case(std::string_view(kind).substr(kind.size() - kSuffix.size()), kSuffix);
}

HttpResponse no_json(const HttpRequest& head) {
  const std::string* const kind = head.headers.find("Content-Type");
  return error_response(
      {.status = 415,
       .message = fmt::format("{} takes JSON and must be told so, but the request {}: add the header Content-Type: "
                              "application/json (with curl: -H 'Content-Type: application/json')",
                              head.path.substr(0, kMostShown),
                              kind == nullptr ? "has no Content-Type" : "says Content-Type: " + quoted(*kind, kMostShown)),
       .code = "unsupported_media_type"});
}

std::optional<HttpResponse> check_caller(const Service& service, const HttpRequest& head) {
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
  // Without an admin's key: whoever is on this machine, but no page in its browser save our own and nobody behind its proxy.
  if (holder || !service.is_loopback()) return refused("adapters are changed with an admin's key (--admin-api-key)");
  if (head.headers.find("Origin") != nullptr && !(service.has_console() && AllowedHosts::is_own_page(head)))
    return refused("web pages may not change adapters, but for the console");
  if (head.forwarded || !head.loopback)
    return refused("a proxy passed this on: whoever comes through one changes adapters with an admin's key (--admin-api-key)");
  return std::nullopt;
}

}  // namespace

std::optional<HttpResponse> check_access(const Service& service, const HttpRequest& head) {
  if (!service.allowed_hosts().allows(head)) return wrong_host(head.headers.get("Host"));
  if (!service.allowed_hosts().allows_origin(head) && !service.cors().allows(head))
    return wrong_origin(head.headers.get("Origin"));
  if (service.cors().is_preflight(head)) return std::nullopt;  // a browser asks without the page's key
  if (auto refusal = check_caller(service, head)) return refusal;
  const std::string_view kind = head.headers.get("Content-Type");
  if (reads_json(head) && !is_json(kind) && !(takes_form(head) && is_form(kind))) return no_json(head);
  return std::nullopt;
}

}  // namespace choral::serve
