// Any bytes as a connection of HTTP requests. Read at once or in pieces, they are the same requests; what is accepted keeps its
// promises, and written again plainly it reads the same: two readers of one stream never disagree about where a request ends.
#include <cctype>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "serve/http/request_reader.h"
#include "serve/http/response_head.h"

namespace {

using choral::serve::Headers;
using choral::serve::HttpRequest;
using choral::serve::RequestReader;

std::shared_ptr<choral::serve::ServerState> small_server() {
  auto server = std::make_shared<choral::serve::ServerState>();
  server->limits.target_bytes = 200;
  server->limits.header_bytes = 2000;
  server->limits.header_count = 20;
  server->limits.body_bytes = 1000;
  return server;
}

struct Read {
  std::vector<HttpRequest> requests;
  int refusal = 0;  // the status that ended it
};

Read read(std::string_view bytes, size_t step, const std::shared_ptr<choral::serve::ServerState>& server) {
  RequestReader reader(server, {"127.0.0.1:1", true, true, "127.0.0.1"}, false);
  Read read;
  reader.begin();
  for (size_t at = 0;; at += step) {
    if (at < bytes.size()) {
      reader.take(bytes.substr(at, step));
    } else {
      reader.end_of_input();
    }
    RequestReader::Step next;
    while ((next = reader.advance()) == RequestReader::Step::kWhole) {
      read.requests.push_back(reader.take_request());
      reader.begin();
    }
    if (next == RequestReader::Step::kRefused) {
      read.refusal = reader.take_refusal().status;
      return read;
    }
    if (next == RequestReader::Step::kEnd) return read;
    CHORAL_CHECK(at < bytes.size(), "more is wanted behind the end");
    CHORAL_CHECK(reader.kept_bytes() <= static_cast<size_t>(server->limits.header_bytes),
                 "an unfinished head is kept without a limit");
  }
}

bool is_same(const HttpRequest& a, const HttpRequest& b) {
  if (a.headers.size() != b.headers.size()) return false;
  for (auto x = a.headers.begin(), y = b.headers.begin(); x != a.headers.end(); ++x, ++y) {
    if (x->name != y->name || x->value != y->value) return false;
  }
  return a.method == b.method && a.path == b.path && a.query == b.query && a.minor_version == b.minor_version && a.body == b.body;
}

void check_promises(const HttpRequest& request, const choral::serve::HttpLimits& limits) {
  CHORAL_CHECK(request.path.starts_with('/') || request.path == "*", "a path of another form");
  for (const char c : request.path)
    CHORAL_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F, "a control character in a path");
  CHORAL_CHECK(static_cast<int64_t>(request.headers.size()) <= limits.header_count, "too many headers");
  CHORAL_CHECK(static_cast<int64_t>(request.body.size()) <= limits.body_bytes, "too large a body");
  CHORAL_CHECK(request.headers.find("Content-Length") == nullptr || request.headers.find("Transfer-Encoding") == nullptr,
               "a body with two lengths");
  CHORAL_CHECK(request.minor_version == 0 || request.headers.find("Host") != nullptr, "a request to no host");
  for (const Headers::Field& field : request.headers) {
    CHORAL_CHECK(!field.name.empty() && field.name.find_first_of(" \t\r\n:") == std::string::npos, "a header's name is no token");
    CHORAL_CHECK(field.value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos, "a header's value is no line");
  }
}

// As a careful client would have sent it.
std::string written(const HttpRequest& request) {
  std::string out = request.method + " ";
  for (const char c : request.path) {
    constexpr char kHex[] = "0123456789ABCDEF";
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '/' || c == '*') {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  if (!request.query.empty()) out += "?" + request.query;
  out += request.minor_version == 1 ? " HTTP/1.1\r\n" : " HTTP/1.0\r\n";
  for (const Headers::Field& field : request.headers) out += field.name + ": " + field.value + "\r\n";
  out += "\r\n";
  if (request.headers.find("Transfer-Encoding") == nullptr) return out + request.body;
  for (size_t at = 0; at < request.body.size(); ++at) out += std::string("1\r\n") + request.body[at] + "\r\n";
  return out + "0\r\n\r\n";
}

// Whatever a request says may stand in an answer's header.
void check_answer(const HttpRequest& request) {
  const std::string head = choral::serve::response_head(200, request.headers, {});
  size_t lines = 0;
  for (size_t at = 0; (at = head.find('\n', at)) != std::string::npos; ++at) ++lines;
  CHORAL_CHECK(lines <= request.headers.size() + 4, "a header became two lines");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto server = small_server();
  if (size == 0) return 0;
  const size_t step = data[0] % 64 + 1;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Read whole = read(bytes, bytes.size() + 1, server);
  const Read pieces = read(bytes, step, server);
  CHORAL_CHECK(whole.requests.size() == pieces.requests.size(), "pieces make other requests");
  CHORAL_CHECK((whole.refusal == 0) == (pieces.refusal == 0), "pieces are refused for being pieces");
  for (size_t i = 0; i < whole.requests.size(); ++i) {
    const HttpRequest& request = whole.requests[i];
    CHORAL_CHECK(is_same(request, pieces.requests[i]), "pieces make another request");
    check_promises(request, server->limits);
    check_answer(request);
    auto generous = std::make_shared<choral::serve::ServerState>();  // escapes are longer than what they stand for
    const std::string plain = written(request);
    const Read again = read(plain, plain.size(), generous);
    CHORAL_CHECK(again.requests.size() == 1 && is_same(again.requests[0], request), "written again it is another request");
  }
  CHORAL_CHECK(server->bodies.held() == 0, "bodies are counted that are gone");
  return 0;
}
