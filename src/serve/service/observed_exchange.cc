#include "serve/service/observed_exchange.h"

#include <atomic>

#include "base/clock.h"
#include "serve/http/fault_boundary.h"

namespace choral::serve {
namespace {

class ObservedExchange : public HttpExchange {
 public:
  ObservedExchange(std::shared_ptr<HttpExchange> inner, std::function<void(const AnsweredRequest&)> told)
      : inner_(std::move(inner)), told_(std::move(told)) {}
  ~ObservedExchange() override {
    contained("telling of an answer",
              [this] { told_({.request = inner_->request(), .status = status_, .seconds = now_s() - begin_s_}); });
  }

  const HttpRequest& request() const override { return inner_->request(); }
  void respond(HttpResponse response) override {
    status_ = response.status;
    inner_->respond(std::move(response));
  }
  void begin_stream(int status, Headers headers) override {
    status_ = status;
    inner_->begin_stream(status, std::move(headers));
  }
  void send(std::string bytes) override { inner_->send(std::move(bytes)); }
  void end_stream() override { inner_->end_stream(); }
  void abort() override { inner_->abort(); }
  size_t unsent_bytes() const override { return inner_->unsent_bytes(); }
  bool congested() const override { return inner_->congested(); }
  void on_drained(std::function<void()> callback) override { inner_->on_drained(std::move(callback)); }
  void on_closed(std::function<void()> callback) override { inner_->on_closed(std::move(callback)); }
  bool closed() const override { return inner_->closed(); }
  void post(std::function<void()> work) override { inner_->post(std::move(work)); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    inner_->post_after(delay, std::move(work));
  }

 private:
  const std::shared_ptr<HttpExchange> inner_;
  const std::function<void(const AnsweredRequest&)> told_;
  const double begin_s_ = now_s();
  std::atomic<int> status_ = 0;
};

}  // namespace

std::shared_ptr<HttpExchange> observed(std::shared_ptr<HttpExchange> exchange, std::function<void(const AnsweredRequest&)> told) {
  return std::make_shared<ObservedExchange>(std::move(exchange), std::move(told));
}

}  // namespace choral::serve
