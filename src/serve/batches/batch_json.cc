#include "serve/batches/batch_json.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "serve/fresh_id.h"
#include "serve/openai/json.h"

namespace choral::serve {
namespace {

constexpr std::array<std::string_view, 4> kBatchEndpoints{"/v1/chat/completions", "/v1/completions", "/v1/embeddings",
                                                          "/v1/responses"};
constexpr std::array<std::string_view, 6> kMoreEndpoints{"/v1/rerank", "/v2/rerank", "/rerank",
                                                         "/v1/score",  "/score",     "/v1/messages"};
constexpr size_t kMostCustomIdBytes = 512;

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string names_of(std::span<const std::string_view> names) {
  std::string text;
  for (const auto name : names) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text;
}

Json text_or_null(std::string_view text) { return text.empty() ? Json(nullptr) : Json(text); }

Json fault_json(const LineFault& fault) {
  return {{"code", fault.code},
          {"message", fault.message},
          {"param", text_or_null(fault.param)},
          {"line", fault.line > 0 ? Json(fault.line) : Json(nullptr)}};
}

std::optional<LineFault> read_line_body(const Json& json, BatchLine& line) {
  const auto body = json.find("body");
  if (body == json.end() || !body->is_object())
    return LineFault{.code = "invalid_request", .message = "'body' must be an object, the request's body", .param = "body"};
  for (const std::string_view switched : {"stream", "background"}) {
    const auto wish = body->find(switched);
    if (wish != body->end() && *wish == true)
      return LineFault{.code = "invalid_request",
                       .message = fmt::format("'{}' cannot be true in a batch: its answers are whole", switched),
                       .param = fmt::format("body.{}", switched)};
  }
  const auto model = body->find("model");
  if (model != body->end() && model->is_string()) line.model = model->get<std::string>();
  line.body = dumped(*body);
  return std::nullopt;
}

}  // namespace

bool is_batch_endpoint(std::string_view path) { return is_one_of(kBatchEndpoints, path); }
std::string batch_endpoints() { return names_of(kBatchEndpoints); }

std::string file_json(const StoredFile& file) {
  return dumped({{"id", file.id},
                 {"object", "file"},
                 {"bytes", file.bytes},
                 {"created_at", file.created_unix_s},
                 {"expires_at", file.expires_unix_s},
                 {"filename", file.name},
                 {"purpose", file.purpose},
                 {"status", "processed"},
                 {"status_details", nullptr}});
}

std::string batch_json(const StoredBatch& b) {
  Json json{{"id", b.id}, {"object", "batch"}, {"endpoint", b.endpoint}, {"errors", nullptr}, {"input_file_id", b.input_file}};
  json["status"] = b.status;
  json["output_file_id"] = b.has_ended() && b.completed > 0 ? Json(b.output_file) : Json(nullptr);
  json["error_file_id"] = b.has_ended() && b.failed > 0 ? Json(b.error_file) : Json(nullptr);
  json["created_at"] = b.created_unix_s;
  json["expires_at"] = b.expires_unix_s;
  for (const char* name :
       {"in_progress_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at", "cancelled_at"})
    json[name] = nullptr;
  json["request_counts"] = {{"total", b.total}, {"completed", b.completed}, {"failed", b.failed}};
  json["metadata"] = nullptr;
  json["usage"] = nullptr;
  const Json facts = Json::parse(b.facts_json);
  for (const auto& [name, value] : facts.items()) json[name] = value;
  return dumped(json);
}

std::string list_json(const std::vector<std::string>& objects, std::string_view first_id, std::string_view last_id,
                      bool has_more) {
  std::string text = R"({"object":"list","data":[)";
  for (const auto& object : objects) text += (text.ends_with('[') ? "" : ",") + object;
  const Json rest{{"first_id", text_or_null(first_id)}, {"last_id", text_or_null(last_id)}, {"has_more", has_more}};
  return text + "]," + dumped(rest).substr(1);
}

std::string deleted_file_json(std::string_view id) { return dumped({{"id", id}, {"object", "file"}, {"deleted", true}}); }

std::string batch_facts(std::string_view window, const std::string& metadata_json) {
  const Json usage{{"input_tokens", 0},
                   {"input_tokens_details", {{"cached_tokens", 0}}},
                   {"output_tokens", 0},
                   {"output_tokens_details", {{"reasoning_tokens", 0}}},
                   {"total_tokens", 0}};
  return dumped({{"completion_window", window},
                 {"metadata", metadata_json.empty() ? Json(nullptr) : Json::parse(metadata_json)},
                 {"usage", usage}});
}

void set_batch_status(StoredBatch& batch, std::string_view status, int64_t unix_s) {
  batch.status = status;
  Json facts = Json::parse(batch.facts_json);
  facts[fmt::format("{}_at", status)] = unix_s;
  batch.facts_json = dumped(facts);
}

void set_batch_errors(StoredBatch& batch, std::span<const LineFault> faults) {
  Json list = Json::array();
  for (const auto& fault : faults) list.push_back(fault_json(fault));
  Json facts = Json::parse(batch.facts_json);
  facts["errors"] = {{"object", "list"}, {"data", std::move(list)}};
  batch.facts_json = dumped(facts);
}

std::optional<LineFault> read_batch_line(std::string_view text, std::string_view endpoint, BatchLine& line) {
  const auto parsed = parse_object(text, "the line");
  if (!parsed.ok()) {
    if (parsed.status().code() == Code::kTooLarge) return LineFault{.code = "too_large", .message = parsed.status().message()};
    return LineFault{.code = "invalid_json_line",
                     .message = fmt::format("This line is not parseable as valid JSON. ({})", parsed.status().message())};
  }
  const Json& json = *parsed;
  std::string method;
  for (const auto& [name, out] : {std::pair("custom_id", &line.custom_id), {"method", &method}, {"url", &line.url}}) {
    const auto value = json.find(name);
    if (value == json.end())
      return LineFault{
          .code = "missing_required_parameter", .message = fmt::format("Missing required parameter: '{}'.", name), .param = name};
    if (const Status status = read_value(name, *value, *out); !status.ok())
      return LineFault{.code = "invalid_type", .message = status.message(), .param = name};
  }
  if (line.custom_id.empty() || line.custom_id.size() > kMostCustomIdBytes)
    return LineFault{.code = "invalid_request",
                     .message = fmt::format("'custom_id' must have 1 to {} bytes", kMostCustomIdBytes),
                     .param = "custom_id"};
  if (method != "POST")
    return LineFault{
        .code = "invalid_method", .message = fmt::format("'method' must be POST, not {}", shown(method)), .param = "method"};
  if (!endpoint.empty() && line.url != endpoint)
    return LineFault{.code = "invalid_url",
                     .message = fmt::format("'url' is {}, and the batch's endpoint is {}", shown(line.url), endpoint),
                     .param = "url"};
  if (!is_one_of(kBatchEndpoints, line.url) && !is_one_of(kMoreEndpoints, line.url))
    return LineFault{.code = "invalid_url",
                     .message = fmt::format("'url' is {}, which lines cannot ask; they ask {}, {}", shown(line.url),
                                            names_of(kBatchEndpoints), names_of(kMoreEndpoints)),
                     .param = "url"};
  return read_line_body(json, line);
}

LineUsage used_tokens(std::string_view answer) {
  simdjson::dom::parser parser;
  simdjson::dom::object usage;
  LineUsage used;
  if (parser.parse(answer.data(), answer.size()).at_key("usage").get(usage)) return used;
  // In the words of chats and completions, or of responses.
  const auto add = [&usage](int64_t& to, std::initializer_list<const char*> places) {
    for (const char* place : places) {
      if (int64_t tokens = 0; !usage.at_pointer(place).get(tokens) && tokens > 0) to += tokens;
    }
  };
  add(used.input, {"/prompt_tokens", "/input_tokens"});
  add(used.cached_input, {"/prompt_tokens_details/cached_tokens", "/input_tokens_details/cached_tokens"});
  add(used.output, {"/completion_tokens", "/output_tokens"});
  add(used.reasoning, {"/completion_tokens_details/reasoning_tokens", "/output_tokens_details/reasoning_tokens"});
  return used;
}

std::string answer_line(std::string_view custom_id, const HttpResponse& answer, std::string_view request_id) {
  // An answer is JSON as it is; only its own line's ends would be another line.
  std::string body = answer.body.empty() ? "null" : answer.body;
  std::replace(body.begin(), body.end(), '\n', ' ');
  return fmt::format(R"({{"id":"{}","custom_id":{},"response":{{"status_code":{},"request_id":{},"body":{}}},"error":null}})",
                     fresh_id("batch_req_"), dumped(custom_id), answer.status, dumped(request_id), body);
}

std::string fault_line(std::string_view custom_id, const LineFault& fault) {
  return dumped({{"id", fresh_id("batch_req_")},
                 {"custom_id", text_or_null(custom_id)},
                 {"response", nullptr},
                 {"error", {{"code", fault.code}, {"message", fault.message}}}});
}

}  // namespace choral::serve
