#include "serve/openai/openapi.h"

#include "base/ascii.h"
#include "choral/llm.h"
#include "requests/unserved_fields.h"
#include "serve/openai/ignored_fields.h"
#include "serve/openai/json.h"

namespace choral::serve {
namespace {

// nlohmann reads {{"a", "b"}} as an object; lists of one string are written out.
Json list_of(Json value) {
  Json list = Json::array();
  list.push_back(std::move(value));
  return list;
}

Json content(std::string_view schema) {
  return {{"application/json", {{"schema", schema.empty() ? Json::object() : Json::parse(schema)}}}};
}

std::string_view error_schema(Dialect dialect) {
  if (dialect == Dialect::kOllama) return R"({"$ref":"#/components/schemas/OllamaError"})";
  return dialect == Dialect::kAnthropic ? R"({"$ref":"#/components/schemas/AnthropicError"})"
                                        : R"({"$ref":"#/components/schemas/Error"})";
}

Json operation(const Endpoint& e, bool has_name) {
  Json json{{"summary", e.summary}};
  if (has_name) {
    json["parameters"] =
        list_of({{"name", "name"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}, {"minLength", 1}}}});
  }
  if (e.method == "PUT") json["requestBody"] = {{"required", true}, {"content", {{"application/octet-stream", Json::object()}}}};
  if (!e.body_schema.empty()) json["requestBody"] = {{"required", true}, {"content", content(e.body_schema)}};
  json["responses"] = {{"200", {{"description", "the answer"}}},
                       {"default", {{"description", "what is wrong"}, {"content", content(error_schema(e.dialect))}}}};
  if (!e.needs_key) json["security"] = Json::array();
  return json;
}

}  // namespace

std::string openapi_document(std::span<const Endpoint> endpoints) {
  Json paths = Json::object();
  for (const auto& e : endpoints) {
    const bool has_name = e.path.ends_with('*');
    const std::string path = has_name ? std::string(e.path.substr(0, e.path.size() - 1)) + "{name}" : std::string(e.path);
    paths[path][lower(std::string(e.method))] = operation(e, has_name);
  }
  constexpr std::string_view kError =
      R"({"type":"object","required":["error"],"properties":{"error":{"type":"object","required":["message","type","param","code"],)"
      R"("properties":{"message":{"type":"string"},"type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":["string","null"]}}}}})";
  constexpr std::string_view kVersionNote =
      "What stands in /v1 goes without it too, and the other way round. /completions and /embeddings alone are other endpoints "
      "than those in /v1: llama.cpp's.";
  constexpr std::string_view kAnthropicError =
      R"({"type":"object","required":["type","error","request_id"],"properties":{"type":{"const":"error"},"request_id":{"type":["string","null"]},)"
      R"("error":{"type":"object","required":["type","message"],"properties":{"type":{"type":"string"},"message":{"type":"string"}}}}})";
  constexpr std::string_view kOllamaError = R"({"type":"object","required":["error"],"properties":{"error":{"type":"string"}}})";
  Json ignored = Json::object(), refused = Json::object();
  for (const auto& field : ignored_fields()) ignored[std::string(field.name)] = field.why;
  for (const auto& field : requests::unserved_fields()) refused[std::string(field.name)] = field.instead;
  const Json document{{"openapi", "3.1.0"},
                      {"info", {{"title", "Choral"}, {"version", version()}, {"description", kVersionNote}}},
                      {"paths", std::move(paths)},
                      {"x-ignored-fields", std::move(ignored)},
                      {"x-refused-fields", std::move(refused)},
                      {"components",
                       {{"schemas",
                         {{"Error", Json::parse(kError)},
                          {"AnthropicError", Json::parse(kAnthropicError)},
                          {"OllamaError", Json::parse(kOllamaError)}}},
                        {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
                      {"security", list_of({{"key", Json::array()}})}};
  return dumped(document);
}

}  // namespace choral::serve
