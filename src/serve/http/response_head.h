// The bytes before an answer's body: status line, the handler's headers, and those that are the server's own. Pure but for the
// date.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "serve/http/message.h"

namespace choral::serve {

// How a reader finds the end of the body.
enum class BodyEnd {
  kLength,  // Content-Length
  kChunks,  // Transfer-Encoding: chunked
  kClose,   // of the connection; all that HTTP/1.0 has for a stream
  kNoBody,  // 204, 304: neither a body nor a length
};

struct HeadFacts {
  BodyEnd end = BodyEnd::kLength;
  size_t length = 0;      // kLength
  int minor_version = 1;  // the request's
  bool keep_alive = true;
};

// With the empty line at its end. A header of `headers` that is the server's own is left out; a control character in a value,
// which could end its line, becomes a space; a header whose name is no token is left out.
std::string response_head(int status, const Headers& headers, const HeadFacts& facts);

bool has_no_body(int status);

// "Sun, 06 Nov 1994 08:49:37 GMT"; `unix_s` in seconds.
std::string http_date(int64_t unix_s);

}  // namespace choral::serve
