#include "serve/service/warned_exchange.h"

#include <utility>

#include "serve/service/passed_on_exchange.h"

namespace choral::serve {
namespace {

class WarnedExchange : public PassedOnExchange {
 public:
  WarnedExchange(std::shared_ptr<HttpExchange> inner, std::vector<std::string> warnings)
      : PassedOnExchange(std::move(inner)), warnings_(std::move(warnings)) {}

  void respond(HttpResponse response) override {
    add(response.headers);
    PassedOnExchange::respond(std::move(response));
  }
  void begin_stream(int status, Headers headers) override {
    add(headers);
    PassedOnExchange::begin_stream(status, std::move(headers));
  }

 private:
  void add(Headers& headers) const {
    for (const auto& warning : warnings_) headers.add("X-Choral-Warnings", warning);
  }

  const std::vector<std::string> warnings_;
};

}  // namespace

std::shared_ptr<HttpExchange> warned(std::shared_ptr<HttpExchange> exchange, std::vector<std::string> warnings) {
  if (warnings.empty()) return exchange;
  return std::make_shared<WarnedExchange>(std::move(exchange), std::move(warnings));
}

}  // namespace choral::serve
