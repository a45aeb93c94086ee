// What the members of a request's JSON mean: tables of fields, each with its reader and the JSON Schema of its value. The fields
// of a choral::Request are the same for a line of `generate --input` and for every route; a route's own stand beside its body.
// For .cc files only (requests/json.h). Immutable; any thread.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "choral/types.h"
#include "requests/json.h"

namespace choral::requests {

template <class Body>
struct Field {
  std::string_view name;
  std::string_view schema;  // of its value, for /openapi.json: "{"type":"boolean"}"
  Status (*read)(std::string_view name, const Json& json, Body& body);
};

// max_tokens where a field says as many as fit, while 0 may say none.
inline constexpr int32_t kAnyNumber = 1 << 30;

// How a prompt is read, and when: of answers and of embeddings.
std::span<const Field<Request>> prompt_fields();

// Sampling, what the answer looks like, what comes back: fields with one meaning wherever they stand.
std::span<const Field<Request>> request_fields();

// A chat's fields: messages, tools, what the template is given.
std::span<const Field<Request>> chat_fields();

template <class Body>
const Field<Body>* find_field(std::span<const Field<Body>> fields, std::string_view name) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

// --- readers that several tables share ---

// "name", or {"name": …, "scale": …}.
Status read_adapter(const std::string& name, const Json& json, AdapterUse& out);
// A name, or a list of adapters that act together.
Status read_adapters(std::string_view name, const Json& json, Request& request);
// A string, or token ids.
Status read_prompt(std::string_view name, const Json& json, Request& request);

}  // namespace choral::requests
