#include "serve/http/answer.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "serve/http/connection.h"
#include "serve/http/error_response.h"
#include "serve/http/fault_boundary.h"
#include "serve/http/request_ids.h"

namespace choral::serve {

Answer::Answer(HttpRequest request, std::unique_ptr<BodyCharge> charge, const HttpLimits& limits,
               std::shared_ptr<IoThread> thread, std::weak_ptr<Connection> reader)
    : request_(std::move(request)),
      charge_(std::move(charge)),
      high_bytes_(static_cast<size_t>(limits.stream_high_bytes)),
      cap_bytes_(static_cast<size_t>(limits.stream_cap_bytes)),
      thread_(std::move(thread)),
      reader_(std::move(reader)) {}

std::shared_ptr<HttpExchange> Answer::exchange() {
  return {this, [self = shared_from_this()](HttpExchange*) { self->abandon(); }};
}

void Answer::wake() {
  if (wake_posted_.exchange(true)) return;
  thread_->post([reader = reader_] {
    if (auto alive = reader.lock()) alive->wake();
  });
}

void Answer::respond(HttpResponse response) {
  {
    const std::lock_guard lock(mutex_);
    CHORAL_CHECK(stage_ == Stage::kNone || over(), "a request is answered twice");
    if (over()) return;
    put_whole(std::move(response));
  }
  wake();
}

void Answer::begin_stream(int status, Headers headers) {
  {
    const std::lock_guard lock(mutex_);
    CHORAL_CHECK(stage_ == Stage::kNone || over(), "a request is answered twice");
    if (over()) return;
    stage_ = Stage::kStream;
    add_ids(request_.ids, headers);
    head_ = Head{status, std::move(headers), true};
  }
  wake();
}

void Answer::send(std::string bytes) {
  if (bytes.empty()) return;  // an empty chunk would end the stream
  {
    const std::lock_guard lock(mutex_);
    CHORAL_CHECK(stage_ == Stage::kStream || over(), "a piece outside begin_stream() and end_stream()");
    if (over()) return;
    if (unsent_bytes() > cap_bytes_) {  // here too: a producer may be faster than the I/O thread comes by
      given_up_ = aborted_ = true;
    } else {
      waiting_ += bytes.size();
      pieces_.push_back(std::move(bytes));
    }
  }
  wake();
}

void Answer::end_stream() {
  {
    const std::lock_guard lock(mutex_);
    CHORAL_CHECK(stage_ == Stage::kStream || over(), "the end of a stream that was not begun");
    if (over()) return;
    stage_ = Stage::kComplete;
  }
  wake();
}

void Answer::abort() {
  std::function<void()> dropped_drained, dropped_closed;  // their ends may call back: not under the lock
  {
    const std::lock_guard lock(mutex_);
    if (over()) return;
    aborted_ = true;
    dropped_drained.swap(on_drained_);
    dropped_closed.swap(on_closed_);
  }
  wake();
}

void Answer::abandon() {
  Stage stage;
  {
    const std::lock_guard lock(mutex_);
    stage = over() ? Stage::kComplete : stage_;
  }
  if (stage == Stage::kComplete) return;
  CHORAL_LOG(kError, "the answer to {} was dropped before its end:{}", request_.path, ids_text(request_.ids));
  answer_fault("the server lost this request");
}

void Answer::answer_fault(std::string message) {
  HttpResponse response = error_response({.status = 500, .message = std::move(message), .code = "internal"});
  {
    const std::lock_guard lock(mutex_);
    if (over() || stage_ == Stage::kComplete) return;
    given_up_ = true;  // whoever still has the exchange may not know
    if (stage_ == Stage::kNone) {
      put_whole(std::move(response));
    } else {
      aborted_ = true;
    }
  }
  wake();
}

void Answer::put_whole(HttpResponse response) {
  stage_ = Stage::kComplete;
  waiting_ += response.body.size();
  add_ids(request_.ids, response.headers);
  head_ = Head{response.status, std::move(response.headers), false};
  pieces_.push_back(std::move(response.body));
}

void Answer::take(Taken& into) {
  into.head.reset();
  into.pieces.clear();
  wake_posted_ = false;  // before the lock: what comes from now on wakes again
  const std::lock_guard lock(mutex_);
  into.head = std::exchange(head_, std::nullopt);
  into.pieces.swap(pieces_);
  into.complete = stage_ == Stage::kComplete;
  into.aborted = aborted_;
  taken_ += waiting_;  // first: a sum that is too large for a moment makes a producer ask again, one too small would not
  waiting_ = 0;
}

void Answer::set_unsent(size_t bytes) {
  taken_ = bytes;
  check_drained();
}

void Answer::check_drained() {
  std::function<void()> due;
  {
    const std::lock_guard lock(mutex_);
    if (over() || on_drained_ == nullptr || unsent_bytes() >= high_bytes_ / 2) return;
    due = std::exchange(on_drained_, nullptr);
  }
  contained("on_drained", due);
}

void Answer::on_drained(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (over()) return;
    on_drained_.swap(callback);
    if (unsent_bytes() >= high_bytes_ / 2) return;
  }
  thread_->post([self = shared_from_this()] { self->check_drained(); });
}

void Answer::on_closed(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (finished_ || (aborted_ && !given_up_)) return;
    if (!closed_) {
      on_closed_.swap(callback);
      return;
    }
  }
  thread_->post(std::move(callback));
}

void Answer::finish() {
  std::function<void()> dropped_drained, dropped_closed;
  const std::lock_guard lock(mutex_);
  finished_ = true;
  taken_ = 0;
  dropped_drained.swap(on_drained_);
  dropped_closed.swap(on_closed_);
}

void Answer::close() {
  std::function<void()> due, dropped;
  std::vector<std::string> pieces;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || finished_) return;
    closed_ = true;
    waiting_ = 0;
    taken_ = 0;
    pieces.swap(pieces_);
    due.swap(on_closed_);
    dropped.swap(on_drained_);
  }
  if (due != nullptr) contained("on_closed", due);
}

}  // namespace choral::serve
