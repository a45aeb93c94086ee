// An error as Anthropic's clients read it:
//   {"type":"error","error":{"type":"invalid_request_error","message":"…"},"request_id":"…"}
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "serve/error_body.h"

namespace choral::serve {

// "invalid_request_error", "authentication_error", "not_found_error", "overloaded_error", …
std::string_view anthropic_error_type(int http_status);
// `request_id`: empty: null.
std::string anthropic_error_body(const ApiError& error, std::string_view request_id);

}  // namespace choral::serve
