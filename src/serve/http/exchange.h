// One request and its answer. The handler gets it on an I/O thread, keeps the shared_ptr while it works, and answers from any
// thread: either respond() once, or begin_stream(), any number of send(), end_stream(). Every method is thread-safe, never blocks
// and never throws for a reason of the network's: what comes after the peer has left, or after the end of the answer, does
// nothing. An answer out of order (a second respond(), send() before begin_stream()) is a bug and ends the process. When the last
// reference goes and the answer is not finished, the server answers 500 or cuts the stream off, and logs it. Calls made by one
// thread keep their order. Callbacks and post() run on the I/O thread of this request's connection, one at a time; they must not
// block. What they throw is caught and logged.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "serve/http/message.h"

namespace choral::serve {

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;

  // The whole answer.
  virtual void respond(HttpResponse response) = 0;

  // The head goes out at once; then each send() is one piece, in chunked encoding (HTTP/1.0: until the connection closes).
  virtual void begin_stream(int status, Headers headers) = 0;
  virtual void send(std::string bytes) = 0;
  virtual void end_stream() = 0;

  // Closes the connection without a proper end, so that the client sees an error and not a short answer.
  virtual void abort() = 0;

  // Back-pressure. Bytes of this answer that the system has not taken yet; over stream_high_bytes the producer should stop and
  // wait for on_drained, and over stream_cap_bytes the connection is closed.
  virtual size_t unsent_bytes() const = 0;
  virtual bool congested() const = 0;  // unsent_bytes() >= stream_high_bytes
  // Calls `callback` once, as soon as less than half of stream_high_bytes is unsent: at once when that is so now. Replaces an
  // earlier one. Never called when the peer leaves first.
  virtual void on_drained(std::function<void()> callback) = 0;

  // Calls `callback` once when the answer can no longer reach the peer: it left or stopped reading, the server closes. Noticed
  // while nothing is being sent, too. At once when that is so already; never after a complete answer or abort().
  // Replaces an earlier one.
  virtual void on_closed(std::function<void()> callback) = 0;
  virtual bool closed() const = 0;

  // Runs `work` on this request's I/O thread, in the order of the calls. Runs whether the peer is there or not; dropped only when
  // the server is gone.
  virtual void post(std::function<void()> work) = 0;
  // The same after a time, e.g. for the next keep-alive. Dropped when the server stops.
  virtual void post_after(std::chrono::milliseconds delay, std::function<void()> work) = 0;
};

}  // namespace choral::serve
