// An exchange that hands everything on to another one: what those derive from that change one thing. Thread-safe as the exchange
// it stands for.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "serve/http/exchange.h"

namespace choral::serve {

class PassedOnExchange : public HttpExchange {
 public:
  explicit PassedOnExchange(std::shared_ptr<HttpExchange> inner) : inner_(std::move(inner)) {}

  const HttpRequest& request() const override { return inner_->request(); }
  void respond(HttpResponse response) override { inner_->respond(std::move(response)); }
  void begin_stream(int status, Headers headers) override { inner_->begin_stream(status, std::move(headers)); }
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
};

}  // namespace choral::serve
