// The exchange of an answer that nobody waits for: its client was told that it is queued, and asks for it later. The answer's
// form keeps the response; what a stream sends goes to the response's events, where there are some, and to nobody else.
// Cancelling it looks to the answer as a client that leaves. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "serve/error_body.h"
#include "serve/http/exchange.h"
#include "serve/responses/response_events.h"

namespace choral::serve {

class BackgroundExchange final : public HttpExchange {
 public:
  // Once, if the answer fails before it has begun, or is lost.
  using Failed = std::function<void(const ApiError& error)>;

  // `first`: the client's, which is answered; its thread does the work.
  // `events`: null where nobody may follow.
  BackgroundExchange(std::shared_ptr<HttpExchange> first, std::shared_ptr<ResponseEvents> events, Failed failed)
      : first_(std::move(first)), events_(std::move(events)), failed_(std::move(failed)) {}
  ~BackgroundExchange() override { end_stream(); }

  void cancel();
  bool has_begun() const;

  const HttpRequest& request() const override { return first_->request(); }
  void respond(HttpResponse response) override;
  void begin_stream(int status, Headers headers) override;
  void send(std::string bytes) override;
  void end_stream() override;
  void abort() override;
  size_t unsent_bytes() const override { return 0; }
  bool congested() const override { return false; }
  void on_drained(std::function<void()> callback) override { post(std::move(callback)); }
  void on_closed(std::function<void()> callback) override;
  bool closed() const override;
  void post(std::function<void()> work) override { first_->post(std::move(work)); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    first_->post_after(delay, std::move(work));
  }

 private:
  const std::shared_ptr<HttpExchange> first_;
  const std::shared_ptr<ResponseEvents> events_;
  const Failed failed_;
  mutable std::mutex mutex_;
  bool begun_ = false, cancelled_ = false;
  std::function<void()> on_closed_;
};

// Those that are computed now, by the ids of their responses. Thread-safe.
class BackgroundExchanges {
 public:
  void add(std::string id, const std::shared_ptr<BackgroundExchange>& exchange);
  std::shared_ptr<BackgroundExchange> find(const std::string& id);  // null: it is not computed now
  bool empty();

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<BackgroundExchange>> all_;
};

}  // namespace choral::serve
