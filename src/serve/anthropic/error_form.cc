#include "serve/anthropic/error_form.h"

#include "base/json_quoted.h"

namespace choral::serve {

std::string_view anthropic_error_type(int http_status) {
  switch (http_status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 408:
    case 504: return "timeout_error";
    case 429: return "rate_limit_error";
    case 424: return "api_error";  // no fault of the request
    case 503: return "overloaded_error";
    default: return http_status >= 500 && http_status != 501 ? "api_error" : "invalid_request_error";
  }
}

std::string anthropic_error_body(const ApiError& error, std::string_view request_id) {
  return fmt::format(R"({{"type":"error","error":{{"type":{},"message":{}}},"request_id":{}}})",
                     json_quoted(anthropic_error_type(error.status)), json_quoted(error.message),
                     request_id.empty() ? "null" : json_quoted(request_id));
}

}  // namespace choral::serve
