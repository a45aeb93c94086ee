// From a request's method and path to its endpoint. Paths are compared as they were routed, decoded once; what is not in the
// table is 404, another method 405. Immutable; any thread.
#pragma once

#include "serve/dialect.h"
#include "serve/service/service.h"

namespace choral::serve {

enum class Access {
  kOpen,   // anybody: health, readiness
  kUser,   // whoever has a key, when there are keys
  kAdmin,  // changes adapters
};

// Its route takes a body, which is JSON.
bool reads_json(const HttpRequest& request);
// So it does, or a form.
bool takes_form(const HttpRequest& request);
// Of the request's route; kUser for what has none, so that a stranger learns no names.
Access access_of(const HttpRequest& request);
// Its pattern in the table; empty: none.
std::string_view route_of(const HttpRequest& request);
// Whose words its answers are in; OpenAI's for what has no route.
Dialect dialect_of(const HttpRequest& request);
void route(Service& service, const Exchange& exchange);

}  // namespace choral::serve
