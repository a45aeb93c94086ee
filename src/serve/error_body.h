// The one shape of an error that leaves the server, as OpenAI's clients read it:
//   {"error":{"message":"…","type":"invalid_request_error","param":null,"code":"…"}}
// The transport's own refusals (limits, malformed requests) and the endpoints' errors are made here, so that a client sees one
// shape. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::serve {

struct ApiError {
  int status = 500;          // of HTTP
  std::string message = {};  // for people: what, why, what to do
  std::string code = {};     // for programs: "request_body_too_large"; empty = null
  std::string param = {};    // the field that is wrong; empty = null
};

// OpenAI's word for a status: "invalid_request_error", "authentication_error", "not_found_error", "rate_limit_error", …
std::string_view error_type(int http_status);

// Valid JSON for any bytes: what is no UTF-8 is written as U+FFFD.
std::string error_body(const ApiError& error);
// The same as the last event of a stream, whose head said 200: with `status` in it.
std::string error_event(const ApiError& error);

// For a log, which never says what was asked: the code and the beginning of the message, up to where it may quote a value. Not
// made safe for a terminal.
std::string error_reason(const ApiError& error);

// The code is Status's, by name; OpenAI's where a prompt is too long.
ApiError api_error(const Status& status, std::string_view param = {});

// Of a request that is right, but for which an adapter's files are not: 424 in place of what says that the request is wrong.
ApiError adapter_error(ApiError error);

}  // namespace choral::serve
