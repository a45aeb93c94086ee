// The answer of one request between the threads that make it and the I/O thread that sends it: pieces under a mutex, and at most
// one wake-up under way. The makers' side is the HttpExchange that Answer::exchange() gives; the connection uses the rest, on its
// I/O thread. Why one object between them: docs/design/http-on-beast.md.
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

// Who sends: told on its I/O thread that there is something to take.
class AnswerReader {
 public:
  virtual ~AnswerReader() = default;
  virtual void answer_changed() = 0;
};

class Answer final : public std::enable_shared_from_this<Answer> {
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

  Answer(HttpRequest request, std::unique_ptr<BodyCharge> charge, const HttpLimits& limits, std::shared_ptr<IoThread> thread,
         std::weak_ptr<AnswerReader> reader);

  // The makers' side; once.
  std::shared_ptr<HttpExchange> exchange();

  // The reader's side.
  const HttpRequest& request() const { return request_; }
  void take(Taken& into);                      // what came since the last call; clears `into` first
  void set_unsent(size_t bytes);               // of what was taken; calls on_drained where it is due
  void finish();                               // everything was handed to the system
  void close();                                // the peer is gone; calls on_closed
  bool begun() const;                          // respond() or begin_stream() was called
  void answer_fault(std::string message);      // 500, or a cut where something was sent already
  void expect_take() { wake_posted_ = true; }  // the reader comes by anyway: no wake-up until its next take()
  void respond(HttpResponse response);         // for who has no exchange

 private:
  class Exchange;
  enum class Stage { kNone, kStream, kComplete };

  void begin_stream(int status, Headers headers);
  void send(std::string bytes);
  void end_stream();
  void abort();
  void abandon();
  size_t unsent_bytes() const { return waiting_ + taken_; }
  bool congested() const { return unsent_bytes() >= high_bytes_; }
  void on_drained(std::function<void()> callback);
  void on_closed(std::function<void()> callback);
  bool over() const { return closed_ || aborted_ || finished_ || given_up_; }  // what comes now does nothing
  void put_whole(HttpResponse response);
  void wake();
  void check_drained();

  const HttpRequest request_;
  const std::unique_ptr<BodyCharge> charge_;
  const size_t high_bytes_;
  const size_t cap_bytes_;
  const std::shared_ptr<IoThread> thread_;
  const std::weak_ptr<AnswerReader> reader_;

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
