#include "requests/request_line.h"

#include <array>

#include "requests/fields.h"
#include "requests/unserved_fields.h"

namespace choral::requests {
namespace {

constexpr std::array kLineFields{
    Field<Request>{"prompt", {}, read_prompt},
    Field<Request>{"prompt_token_ids",
                   {},
                   [](std::string_view n, const Json& j, Request& r) { return read_value(n, j, r.prompt_token_ids); }},
    Field<Request>{
        "logprobs", {}, [](std::string_view n, const Json& j, Request& r) { return read_value(n, j, r.sampling.logprobs); }},
    Field<Request>{"lora", {}, read_adapters},
    Field<Request>{"embedding", {}, [](std::string_view n, const Json& j, Request& r) { return read_value(n, j, r.embedding); }},
    Field<Request>{
        "dimensions", {}, [](std::string_view n, const Json& j, Request& r) { return read_value(n, j, r.embedding_dimensions); }},
    Field<Request>{"classes", {}, [](std::string_view n, const Json& j, Request& r) { return read_value(n, j, r.classes); }},
};

const std::array kTables{std::span<const Field<Request>>(kLineFields), prompt_fields(), request_fields(), chat_fields()};

const Field<Request>* field_of(std::string_view name) {
  for (const auto& fields : kTables) {
    if (const auto* field = find_field(fields, name)) return field;
  }
  return nullptr;
}

}  // namespace

RequestLineReader::RequestLineReader(SamplingParams defaults, std::function<void(const std::string&)> warn)
    : defaults_(std::move(defaults)), warn_(std::move(warn)) {}

Status RequestLineReader::meet_unknown(const std::string& name) {
  const auto say = warn_ ? warned_.meet(name) : UnknownFieldLog::Say::kIt;
  if (say == UnknownFieldLog::Say::kNothing) return {};
  if (say == UnknownFieldLog::Say::kMore) return warn_(std::string(kMoreUnknownFields)), Status();
  std::vector<std::string> names;
  for (const auto& fields : kTables) {
    for (const auto& field : fields) names.emplace_back(field.name);
  }
  if (!warn_) return invalid_argument("{}", unknown_field_text(name, names, UnknownField::kIsAnError));
  warn_(unknown_field_text(name, names, UnknownField::kHasNoEffect));
  return {};
}

Status RequestLineReader::read(std::string_view line, RequestLine& out) {
  out.request.sampling = defaults_;
  out.echo = {};
  CHORAL_TRY(const Json json, parse_object(line, "the request"));
  if (const auto id = json.find("id"); id != json.end()) {
    if (!id->is_string() && !id->is_number_integer() && !id->is_null())
      return wrong_type("id", "a string or a whole number", *id);
    out.echo.id_json = dumped(*id);
    if (!id->is_null()) out.request.id = id->is_string() ? id->get<std::string>() : out.echo.id_json;
  }
  if (const auto lora = json.find("lora"); lora != json.end()) out.echo.lora_json = dumped(*lora);
  for (const auto& [name, value] : json.items()) {
    if (const auto* field = field_of(name)) {
      if (!value.is_null()) CHORAL_RETURN_IF_ERROR(field->read(name, value, out.request));
    } else if (is_unserved(name)) {
      CHORAL_RETURN_IF_ERROR(check_unserved(name, value));
    } else if (name != "id") {
      CHORAL_RETURN_IF_ERROR(meet_unknown(name));
    }
  }
  return {};
}

}  // namespace choral::requests
