// HTTP/1.1 from one thread to one server, many requests at a time: connections are kept and used again, bodies come as they
// arrive. Everything that a server sends is bounded, and each request has a time limit. libcurl speaks; one .cc knows it.
// Callbacks run inside run(); only stop() may be called from another thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tools/load/endpoint.h"

namespace choral::tools {

struct HttpRequest {
  std::string method = "POST";
  std::string path;  // after the endpoint's prefix
  std::string body = {};
  std::string api_key = {};
  double timeout_s = 600;
};

// What becomes of one request. Methods are called in this order; on_end() once, and nothing after it.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual void on_head(int status, std::string_view content_type) = 0;
  // An error gives the request up; on_end() gets it.
  virtual Status on_body(std::string_view bytes) = 0;
  // not_found: no such host. unavailable: no connection. deadline_exceeded: the time limit. cancelled: stop(). corrupt: not HTTP,
  // or cut off.
  virtual void on_end(const Status& status) = 0;
};

class HttpClient {
 public:
  static constexpr size_t kMaxHeadBytes = 64 << 10;
  static constexpr uint64_t kMaxBodyBytes = uint64_t{256} << 20;

  static Result<std::unique_ptr<HttpClient>> make(const Endpoint& endpoint);
  virtual ~HttpClient() = default;

  virtual void send(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
  // Calls once, in so many seconds.
  virtual void after(double seconds, std::function<void()> call) = 0;
  // Returns when every request has ended and every call was made, or after stop(). An error is this program's own.
  virtual Status run() = 0;
  virtual void stop() = 0;  // every request ends as cancelled; calls are not made any more
};

}  // namespace choral::tools
