// Bytes of a connection -> one HttpRequest or one HttpFault, within limits and without a socket. Beast reads the grammar; what is
// stricter here is listed in docs/design/http-on-beast.md. One parser for one request. Not thread-safe. Called by the connection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serve/error_body.h"
#include "serve/http/limits.h"
#include "serve/http/message.h"

namespace choral::serve {

class RequestParser {
 public:
  explicit RequestParser(const HttpLimits& limits);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  // Takes bytes from the front and says how many. The rest must stand at the front of the next input, with more behind it. Stops
  // at the end of the head, at the end of the request, and at a fault; a rest without any of these wants more bytes. The rest is
  // never longer than limits.header_bytes.
  size_t feed(std::string_view input);

  bool started() const;    // a byte of the request was taken
  bool head_done() const;  // request() is whole but for the body; the facts below are known
  bool done() const;
  const ApiError* fault() const;  // nothing more will be read after it

  bool keep_alive() const;
  bool expects_continue() const;
  HttpRequest& request();
  const HttpRequest& request() const;

 private:
  class Beast;
  std::unique_ptr<Beast> beast_;
};

// "/a%20b" -> "/a b"; nothing when an escape is broken or the result holds a control character or is no UTF-8.
std::optional<std::string> decoded_path(std::string_view raw);

}  // namespace choral::serve
