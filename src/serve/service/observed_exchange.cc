#include "serve/service/observed_exchange.h"

#include <atomic>

#include "base/clock.h"
#include "serve/http/fault_boundary.h"
#include "serve/service/passed_on_exchange.h"

namespace choral::serve {
namespace {

class ObservedExchange : public PassedOnExchange {
 public:
  ObservedExchange(std::shared_ptr<HttpExchange> inner, std::function<void(const AnsweredRequest&)> told)
      : PassedOnExchange(std::move(inner)), told_(std::move(told)) {}
  ~ObservedExchange() override {
    contained("telling of an answer",
              [this] { told_({.request = request(), .status = status_, .seconds = now_s() - begin_s_}); });
  }

  void respond(HttpResponse response) override {
    status_ = response.status;
    PassedOnExchange::respond(std::move(response));
  }
  void begin_stream(int status, Headers headers) override {
    status_ = status;
    PassedOnExchange::begin_stream(status, std::move(headers));
  }

 private:
  const std::function<void(const AnsweredRequest&)> told_;
  const double begin_s_ = now_s();
  std::atomic<int> status_ = 0;
};

}  // namespace

std::shared_ptr<HttpExchange> observed(std::shared_ptr<HttpExchange> exchange, std::function<void(const AnsweredRequest&)> told) {
  return std::make_shared<ObservedExchange>(std::move(exchange), std::move(told));
}

}  // namespace choral::serve
