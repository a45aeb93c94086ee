// An exchange that tells what became of its request: once, when the head of the answer goes out and when the answer has ended.
// All else is passed on. Thread-safe as the exchange it stands for.
#pragma once

#include <functional>
#include <memory>

#include "serve/http/exchange.h"

namespace choral::serve {

struct AnsweredRequest {
  const HttpRequest& request;
  int status = 0;  // 0: the client left before there was one
  double seconds = 0;
};

// `told` may be called from any thread, once.
std::shared_ptr<HttpExchange> observed(std::shared_ptr<HttpExchange> exchange, std::function<void(const AnsweredRequest&)> told);

}  // namespace choral::serve
