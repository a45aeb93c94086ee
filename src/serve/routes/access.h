// Who may ask for what: by a request's path and headers alone, before its body is read. Keys guard everything but health and
// readiness; what changes adapters needs an admin's key, or without any such key a server that only this machine reaches, and
// then nobody whom a proxy lets in. Web pages of other sites get nothing, and a body says that it is JSON, which no such page
// can say without asking first. Any thread.
#pragma once

#include <optional>

#include "serve/service/service.h"

namespace choral::serve {

// Nothing: the request may pass.
std::optional<HttpResponse> check_access(const Service& service, const HttpRequest& head);

}  // namespace choral::serve
