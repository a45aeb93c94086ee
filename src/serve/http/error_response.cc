#include "serve/http/error_response.h"

namespace choral::serve {

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status,
                        .headers = {{"Content-Type", "application/json"}},
                        .body = error_body(error),
                        .reason = error_reason(error),
                        .error = std::make_shared<const ApiError>(error)};
  // A place in the queue is free in seconds; clients that are told nothing come back at once and all together.
  if (error.status == 429 || error.status == 503) response.headers.add("Retry-After", "1");
  if (error.status == 401) response.headers.add("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse error_response(const Status& status, std::string_view param) { return error_response(api_error(status, param)); }

HttpResponse json_response(std::string body) {
  return {.status = 200, .headers = {{"Content-Type", "application/json"}}, .body = std::move(body)};
}

}  // namespace choral::serve
