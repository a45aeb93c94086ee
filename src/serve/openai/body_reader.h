// Bodies read member by member with tables of fields (requests/fields.h). For .cc files only. Pure; any thread.
#pragma once

#include <span>

#include "requests/fields.h"
#include "serve/openai/calls.h"
#include "serve/openai/json.h"

namespace choral::serve {

using requests::Field;

// Whether `name` is a field that is taken and changes nothing that a client sees.
bool is_ignored(std::string_view name);

// A member of the body itself.
template <class Body, auto kMember>
Status read_member(std::string_view name, const Json& json, Body& body) {
  return read_value(name, json, body.*kMember);
}

// Reads a member with the table, if it knows it. False: it does not.
template <class Body>
bool read_with(std::span<const Field<Body>> fields, std::string_view name, const Json& value, Body& body, Status& status) {
  const auto* field = requests::find_field(fields, name);
  if (field == nullptr) return false;
  if (!value.is_null()) status = field->read(name, value, body);
  return true;
}

inline void note_unknown(const std::string& name, BodyNotes& notes) {
  constexpr size_t kMost = 16;  // that are named
  if (notes.unknown.size() < kMost) notes.unknown.push_back(shown(name));
}

// Each member with read(name, value, status), which says whether it is known.
template <class Read>
Status read_members(const Json& json, BodyNotes& notes, Read&& read) {
  for (const auto& [name, value] : json.items()) {
    Status status;
    const bool known = read(name, value, status);
    if (!status.ok()) {
      notes.param = shown(name);
      return status;
    }
    if (!known && !is_ignored(name)) note_unknown(name, notes);
  }
  return {};
}

// A body with one table.
template <class Body>
Status read_body(const Json& json, std::span<const Field<Body>> fields, Body& body, BodyNotes& notes) {
  return read_members(json, notes, [&](const std::string& name, const Json& value, Status& status) {
    return read_with(fields, name, value, body, status);
  });
}

template <class Body>
void add_schemas(std::span<const Field<Body>> fields, Json& properties) {
  for (const auto& field : fields) {
    if (!field.schema.empty()) properties[std::string(field.name)] = Json::parse(field.schema);
  }
}

// The JSON Schema of a body that these tables read; `required`: a JSON list of names.
template <class... Body>
std::string schema_of(std::string_view required, std::span<const Field<Body>>... tables) {
  Json schema{{"type", "object"}};
  Json& properties = schema["properties"] = Json::object();
  (add_schemas(tables, properties), ...);
  schema["required"] = Json::parse(required);
  return dumped(schema);
}

// The body of a chat that is parsed already, `size` large.
Result<ChatCall> read_chat(Json body, ParsedSize& size, const SamplingParams& defaults, BodyNotes& notes);

inline Status missing(std::string_view name, BodyNotes& notes) {
  notes.param = name;
  return invalid_argument("'{}' is missing", name);
}

}  // namespace choral::serve
