// Bodies read member by member with tables of fields (requests/fields.h). For .cc files only. Pure; any thread.
#pragma once

#include <array>
#include <span>

#include "requests/fields.h"
#include "requests/unknown_fields.h"
#include "requests/unserved_fields.h"
#include "serve/openai/calls.h"
#include "serve/openai/ignored_fields.h"
#include "serve/openai/json.h"

namespace choral::serve {

using requests::Field;

inline constexpr std::string_view kLora =
    R"({"oneOf":[{"type":"string"},{"type":"array","items":{"oneOf":[{"type":"string"},{"type":"object","properties":)"
    R"({"name":{"type":"string"},"id":{"type":"integer","minimum":0},"scale":{"type":"number"}}}]}}]})";
// The names of requests::read_adapters(), and llama.cpp's {"id": 0, "scale": 0.5}.
Status read_lora(std::string_view name, const Json& json, CallHead& head);
// cache_salt is not too long.
Status check_salt(const Request& request, BodyNotes& notes);

// What the bodies that ask for vectors have in common.
inline constexpr std::string_view kPromptsSchema =
    R"({"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}},{"type":"array","items":{"type":"integer","minimum":0}},)"
    R"({"type":"array","items":{"type":"array","items":{"type":"integer","minimum":0}}}]})";
inline constexpr std::string_view kEncodingSchema = R"({"type":"string","enum":["float","base64"]})";
inline constexpr std::string_view kDimensionsSchema = R"({"type":"integer","minimum":1})";
Status read_inputs(std::string_view name, const Json& json, EmbeddingCall& call);
Status read_encoding(std::string_view name, const Json& json, EmbeddingCall& call);
Status read_dimensions(std::string_view name, const Json& json, EmbeddingCall& call);

// A member of the body itself.
template <class Body, auto kMember>
Status read_member(std::string_view name, const Json& json, Body& body) {
  return read_value(name, json, body.*kMember);
}

// One of the tables that read a body, and what it fills.
template <class Body>
struct Table {
  std::span<const Field<Body>> fields;
  Body& body;
};
template <size_t kCount, class Body>
Table<Body> table(const std::array<Field<Body>, kCount>& fields, Body& body) {
  return {fields, body};
}
template <class Body>
Table<Body> table(std::span<const Field<Body>> fields, Body& body) {
  return {fields, body};
}

// Reads a member with the table, if it knows it. False: it does not.
template <class Body>
bool read_with(Table<Body> table, std::string_view name, const Json& value, Status& status) {
  const auto* field = requests::find_field(table.fields, name);
  if (field == nullptr) return false;
  if (!value.is_null()) status = field->read(name, value, table.body);
  return true;
}

// A member that no table knows. `known`: gives the names there are.
template <class KnownNames>
Status meet_unread(const std::string& name, const Json& value, BodyNotes& notes, KnownNames&& known) {
  constexpr size_t kMost = 16;  // that are named
  if (requests::is_unserved(name)) return requests::check_unserved(name, value);
  if (is_ignored(name) || (!notes.strict && notes.warnings.size() >= kMost)) return {};
  const std::vector<std::string> names = known();
  if (notes.strict) return invalid_argument("{}", requests::unknown_field_text(name, names, requests::UnknownField::kIsAnError));
  notes.warnings.push_back(requests::unknown_field_text(name, names, requests::UnknownField::kHasNoEffect));
  return {};
}

template <class Body>
void add_names(std::span<const Field<Body>> fields, std::vector<std::string>& names) {
  for (const auto& field : fields) names.emplace_back(field.name);
}

// Each member with the first table that knows it.
template <class... Body>
Status read_members(const Json& json, BodyNotes& notes, Table<Body>... tables) {
  for (const auto& [name, value] : json.items()) {
    Status status;
    if (!(read_with(tables, name, value, status) || ...)) {
      status = meet_unread(name, value, notes, [&] {
        std::vector<std::string> names;
        (add_names(tables.fields, names), ...);
        return names;
      });
    }
    if (!status.ok()) {
      notes.param = shown(name);
      return status;
    }
  }
  return {};
}

template <class Body>
void add_schemas(std::span<const Field<Body>> fields, Json& properties, Json& others) {
  for (const auto& field : fields) {
    if (field.schema.empty()) {
      others.push_back(field.name);
    } else {
      properties[std::string(field.name)] = Json::parse(field.schema);
    }
  }
}

// The JSON Schema of a body that these tables read; `required`: a JSON list of names. "x-also": other names for some of them.
template <class... Body>
std::string schema_of(std::string_view required, std::span<const Field<Body>>... tables) {
  Json schema{{"type", "object"}}, others = Json::array();
  Json& properties = schema["properties"] = Json::object();
  (add_schemas(tables, properties, others), ...);
  if (!others.empty()) schema["x-also"] = std::move(others);
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
