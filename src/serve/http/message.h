// Requests and answers of HTTP as values. Nothing here knows a socket. Thread-safety: values, like std::string.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace choral::serve {

struct ApiError;

// ASCII letters count as equal in both cases; other bytes as they are.
bool equal_ignoring_case(std::string_view a, std::string_view b);

// Fields in the order they came, names as they were written. Lookups ignore case.
class Headers {
 public:
  struct Field {
    std::string name;
    std::string value;
  };

  Headers() = default;
  Headers(std::initializer_list<Field> fields) : fields_(fields) {}

  void add(std::string name, std::string value) { fields_.push_back({std::move(name), std::move(value)}); }
  void set(std::string_view name, std::string value);  // replaces every field of that name
  // The first field's value; null when there is none. Valid until the headers change.
  const std::string* find(std::string_view name) const;
  // The same as text; empty when there is none.
  std::string_view get(std::string_view name) const;

  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }
  size_t size() const { return fields_.size(); }
  bool empty() const { return fields_.empty(); }

 private:
  std::vector<Field> fields_;
};

// http/request_ids.h
struct RequestIds {
  std::string request;      // the client's X-Request-Id, or made here
  std::string trace;        // 32 hexadecimal digits of the client's trace; empty: there is none
  std::string span;         // of this request in it
  std::string parent_span;  // the client's
  uint8_t trace_flags = 0;
};

struct HttpRequest {
  std::string method;  // as it was written: "GET"
  // Percent-decoded valid UTF-8 without NUL, without the query; begins with '/', or is "*" (OPTIONS). Not normalised: "/a/../b"
  // is what it says and matches no route.
  std::string path;
  std::string query;      // raw, without '?'
  int minor_version = 1;  // of HTTP/1
  Headers headers;
  std::string body;        // whole, chunks put together
  std::string peer;        // "127.0.0.1:5001", "[::1]:5001" or "unix"; behind a trusted proxy the client's address
  std::string payer;       // whose share of what clients have in common it uses: Peer::host, behind a trusted proxy the client's,
                           // or what the head check says
  bool loopback = false;   // the peer is this machine: a loopback address or the unix socket
  bool forwarded = false;  // a proxy passed it on, trusted or not
  bool unix_socket = false;  // it came over that
  bool tls = false;
  RequestIds ids = {};
  // Of a line of a batch, which no connection brought.
  std::string on_behalf_of = {};  // KeyHolder::salt of the key that asked for it, where there are keys
  bool in_background = false;     // it goes behind what connections bring
};

struct HttpResponse {
  int status = 200;
  // Content-Length, Transfer-Encoding, Connection and Date are the server's own. "Connection: close" asks it to close afterwards.
  Headers headers = {};
  std::string body = {};
  std::string reason = {};                     // of an error, for logs (error_body.h)
  std::shared_ptr<const ApiError> error = {};  // that the body tells; null: it tells none
};

// "Not Found"; "Unknown" for a number without a meaning.
std::string_view reason_phrase(int status);

}  // namespace choral::serve
