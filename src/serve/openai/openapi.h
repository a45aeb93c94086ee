// GET /openapi.json: the endpoints as they are routed, with bodies as the tables of fields read them, and
// which fields of other servers have no effect or are refused. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "serve/dialect.h"

namespace choral::serve {

struct Endpoint {
  std::string_view method;
  std::string_view path;  // with '*' at its end: a name follows
  std::string_view summary;
  std::string body_schema;  // empty: it takes none
  bool needs_key = true;    // when the server has keys
  Dialect dialect = Dialect::kOpenAI;
};

std::string openapi_document(std::span<const Endpoint> endpoints);

}  // namespace choral::serve
