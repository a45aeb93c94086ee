// A server on a free port of the loopback for one test, and handlers that tests share. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "serve/http/raw_client_test.h"
#include "serve/http/server.h"

namespace choral::serve::testing {

inline HttpServerOptions on_a_free_port() {
  HttpServerOptions options;
  options.port = 0;
  return options;
}

inline std::unique_ptr<HttpServer> serve(HttpServerOptions options, HttpHandler handler, HttpHeadCheck head_check = {}) {
  auto server = HttpServer::start(std::move(options), std::move(handler), std::move(head_check));
  CHORAL_CHECK(server.ok(), server.status().message());
  return std::move(server).value();
}
inline std::unique_ptr<HttpServer> serve(HttpHandler handler) { return serve(on_a_free_port(), std::move(handler)); }

// "METHOD path query body"
inline void echo(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpRequest& request = exchange->request();
  exchange->respond(
      {200, {{"Content-Type", "text/plain"}}, request.method + " " + request.path + " " + request.query + " " + request.body});
}

// Keeps exchanges for a test that answers them itself.
class Held {
 public:
  HttpHandler handler() {
    return [this](std::shared_ptr<HttpExchange> exchange) {
      const std::lock_guard lock(mutex_);
      exchanges_.push_back(std::move(exchange));
    };
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return exchanges_.size();
  }
  // The next one, in the order of their coming; waits for it.
  std::shared_ptr<HttpExchange> take() {
    CHORAL_CHECK(eventually([this] { return count() > 0; }), "no request came");
    const std::lock_guard lock(mutex_);
    auto first = std::move(exchanges_.front());
    exchanges_.erase(exchanges_.begin());
    return first;
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpExchange>> exchanges_;
};

// A server whose requests wait for the test to answer them.
class HeldServer {
 public:
  explicit HeldServer(HttpServerOptions options = on_a_free_port()) : server_(serve(std::move(options), held_.handler())) {}

  HttpServer* operator->() const { return server_.get(); }
  std::shared_ptr<HttpExchange> take() { return held_.take(); }
  size_t count() { return held_.count(); }
  void end() { server_.reset(); }

  RawClient client(int receive_buffer = 0) const { return RawClient::tcp(server_->port(), receive_buffer); }
  // One that has asked for something.
  RawClient asking_client(int receive_buffer = 0) const {
    RawClient asking = client(receive_buffer);
    asking.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    return asking;
  }

 private:
  Held held_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace choral::serve::testing
