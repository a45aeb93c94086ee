// How routes read a body: what it says that has no effect is told, and what is wrong with it answered. On reader threads.
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "serve/openai/calls.h"
#include "serve/service/service.h"

namespace choral::serve {

// What read(body, notes) makes of the exchange's body. Nothing: the exchange is answered with why not.
template <class Read>
auto read_body(Service& service, const Exchange& exchange, BodyNotes& notes, Read read) {
  notes.strict = service.has_strict_fields();
  auto call = read(std::string_view(exchange->request().body), notes);
  service.warn(exchange, std::move(notes.warnings));
  using Call = std::remove_cvref_t<decltype(*call)>;
  if (call.ok()) return std::optional<Call>(*std::move(call));
  exchange->respond(service.error(call.status(), notes.param));
  return std::optional<Call>();
}

}  // namespace choral::serve
