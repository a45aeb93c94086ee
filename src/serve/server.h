// The server: listens at once, answers 503 while the model is loaded, then serves it until it is told to end. Its life in one
// line: loading -> ready -> unready (still serving) -> draining -> ended. Thread-safe: every method from any thread but the
// server's own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "choral/llm.h"
#include "serve/http/server.h"

namespace choral::serve {

class Service;

struct ServerOptions {
  HttpServerOptions http;
  std::vector<std::string> base_names;  // that requests call the base by; empty: the model's own
  std::string adapter_root;             // to which adapters that clients load are bound
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> start(ServerOptions options);
  ~Server();

  // Requests reach the engine from now on. It must outlive the server.
  void attach(LLM& llm);
  int port() const;
  std::vector<std::string> addresses() const;

  // GET /readyz says no from now on; requests are served on.
  void set_unready();
  // New requests are refused; returns when every answer has ended, those that take longer than `limit` with an error.
  void drain(std::chrono::milliseconds limit);
  // The limit of a drain() in progress is over.
  void abort();

 private:
  Server();

  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> http_;
  struct Waiting;
  std::unique_ptr<Waiting> waiting_;
};

}  // namespace choral::serve
