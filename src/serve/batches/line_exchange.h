// The exchange of a request that no connection brought, a line of a batch: its answer is gathered and handed over as a whole.
// Cancelling it looks to whoever answers as a client that leaves. Thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "serve/http/exchange.h"
#include "serve/service/work_queue.h"

namespace choral::serve {

// A POST of JSON to a path, with a name of its own.
HttpRequest line_request(std::string path, std::string body);

class LineExchange final : public HttpExchange {
 public:
  static constexpr size_t kMostBytes = 64 << 20;  // of an answer

  // Once, from any thread. The status 0: it was cancelled, and there is no answer.
  using Ended = std::function<void(HttpResponse answer)>;
  // `queue`, of one thread, does the work that is posted, and outlives the exchange.
  LineExchange(HttpRequest request, WorkQueue& queue, Ended ended)
      : request_(std::move(request)), queue_(queue), ended_(std::move(ended)) {}
  ~LineExchange() override;

  void cancel();

  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override { end(std::move(response)); }
  void begin_stream(int status, Headers headers) override;
  void send(std::string bytes) override;
  void end_stream() override;
  void abort() override;
  size_t unsent_bytes() const override { return 0; }
  bool congested() const override { return false; }
  void on_drained(std::function<void()> callback) override { post(std::move(callback)); }
  void on_closed(std::function<void()> callback) override;
  bool closed() const override;
  void post(std::function<void()> work) override { queue_.push(std::move(work)); }
  // Only streams wait for a time, and no line has one.
  void post_after(std::chrono::milliseconds, std::function<void()>) override {}

 private:
  void end(HttpResponse response);

  const HttpRequest request_;
  WorkQueue& queue_;
  mutable std::mutex mutex_;
  Ended ended_;  // until it was called
  HttpResponse gathered_;
  bool cancelled_ = false;
  std::function<void()> on_closed_;
};

}  // namespace choral::serve
