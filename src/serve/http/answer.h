// The answer of one request between the threads that make it and the I/O thread that sends it: pieces under a mutex, and at most
// one wake-up under way. The makers' side is that of an HttpExchange; the connection uses the rest, on its I/O thread. Why one
// object between them: docs/design/http-on-beast.md.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/http/exchange.h"
#include "serve/http/io_thread.h"
#include "serve/http/server_state.h"

namespace choral::serve {

class Connection;

class Answer final : public HttpExchange, public std::enable_shared_from_this<Answer> {
 public:
  struct Head {
    int status = 500;
    Headers headers;
    bool stream = false;  // pieces follow until the end; else there is one piece, the body
  };
  struct Taken {
    std::optional<Head> head;
    std::vector<std::string> pieces;
    bool complete = false;  // no more will come
    bool aborted = false;
  };

  // `reader`, on `thread`, is woken when there is something to take.
  Answer(HttpRequest request, std::unique_ptr<BodyCharge> charge, const HttpLimits& limits, std::shared_ptr<IoThread> thread,
         std::weak_ptr<Connection> reader);

  // The makers' side; once. Its end is the end of whoever could still answer.
  std::shared_ptr<HttpExchange> exchange();
  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override;
  void begin_stream(int status, Headers headers) override;
  void send(std::string bytes) override;
  void end_stream() override;
  void abort() override;
  size_t unsent_bytes() const override { return waiting_ + taken_; }
  bool congested() const override { return unsent_bytes() >= high_bytes_; }
  void on_drained(std::function<void()> callback) override;
  void on_closed(std::function<void()> callback) override;
  bool closed() const override { return closed_; }
  void post(std::function<void()> work) override { thread_->post(std::move(work)); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    thread_->post_after(delay, std::move(work));
  }

  // The reader's side.
  void take(Taken& into);                      // what came since the last call; clears `into` first
  void set_unsent(size_t bytes);               // of what was taken; calls on_drained where it is due
  void finish();                               // everything was handed to the system
  void close();                                // the peer is gone; calls on_closed
  bool begun() const;                          // respond() or begin_stream() was called
  void answer_fault(std::string message);      // 500, or a cut where something was sent already
  void expect_take() { wake_posted_ = true; }  // the reader comes by anyway: no wake-up until its next take()

 private:
  enum class Stage { kNone, kStream, kComplete };

  void abandon();
  bool over() const { return closed_ || aborted_ || finished_ || given_up_; }  // what comes now does nothing
  void put_whole(HttpResponse response);
  void wake();
  void check_drained();

  const HttpRequest request_;
  const std::unique_ptr<BodyCharge> charge_;
  const size_t high_bytes_;
  const size_t cap_bytes_;
  const std::shared_ptr<IoThread> thread_;
  const std::weak_ptr<Connection> reader_;

  std::atomic<bool> wake_posted_{false};
  std::atomic<size_t> waiting_{0};  // bytes not taken
  std::atomic<size_t> taken_{0};    // bytes taken, not sent
  std::atomic<bool> closed_{false};

  mutable std::mutex mutex_;  // of what follows
  Stage stage_ = Stage::kNone;
  bool aborted_ = false;
  bool given_up_ = false;  // by answer_fault(), or over the cap
  bool finished_ = false;
  std::optional<Head> head_;
  std::vector<std::string> pieces_;
  std::function<void()> on_drained_;
  std::function<void()> on_closed_;
};

}  // namespace choral::serve
