#include "serve/error_body.h"

#include <array>

#include "base/json_quoted.h"
#include "engine/prompt_length.h"

namespace choral::serve {

std::string_view error_type(int http_status) {
  switch (http_status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 409: return "conflict_error";
    case 424: return "dependency_error";
    case 429: return "rate_limit_error";
    case 499: return "cancelled_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return http_status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string error_reason(const ApiError& error) {
  constexpr size_t kMostBytes = 200;
  // What stands behind these may be the client's: the value in place of a number, the text that is no JSON, what a template says
  // of a message, a schema.
  constexpr std::array<std::string_view, 5> kBeforeValues{", not ", "; last read", " double holds",
                                                          "chat template:", "structured_output:"};
  std::string_view message = error.message;
  for (const auto mark : kBeforeValues) {
    const size_t at = message.find(mark);
    if (at != message.npos) message = message.substr(0, mark.ends_with(':') ? at + mark.size() - 1 : at);
  }
  return fmt::format("{}: {}", error.code, message.substr(0, kMostBytes));
}

namespace {

std::string error_json(const ApiError& error, std::string_view more) {
  const auto or_null = [](std::string_view text) { return text.empty() ? std::string("null") : json_quoted(text); };
  return fmt::format(R"({{"error":{{"message":{},"type":{},"param":{},"code":{}{}}}}})", json_quoted(error.message),
                     json_quoted(error_type(error.status)), or_null(error.param), or_null(error.code), more);
}

// What is wrong with a request is 400 to OpenAI's clients, whichever way it is wrong.
int answer_status(Code code) {
  switch (code) {
    case Code::kCorrupt:
    case Code::kUnsupported:
    case Code::kTooLarge: return 400;
    default: return http_status(code);
  }
}

}  // namespace

ApiError adapter_error(ApiError error) {
  if (error.status != 400 && error.status != 403) return error;
  error.status = 424;
  error.code = "adapter_unusable";
  return error;
}

std::string error_body(const ApiError& error) { return error_json(error, ""); }
std::string error_event(const ApiError& error) { return error_json(error, fmt::format(R"(,"status":{})", error.status)); }

ApiError api_error(const Status& status, std::string_view param) {
  const std::string_view code = engine::is_prompt_too_long(status) ? "context_length_exceeded" : code_name(status.code());
  return {answer_status(status.code()), status.message(), std::string(code), std::string(param)};
}

}  // namespace choral::serve
