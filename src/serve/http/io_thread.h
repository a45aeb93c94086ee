// A thread that waits for sockets and timers, and whoever is posted to it. Connections belong to one of them and are touched
// nowhere else. Asio stays in io_thread.cc and in the few files that wait themselves. Thread-safe but for scratch().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>

#include "base/status.h"

namespace boost::asio {
class io_context;
}

namespace choral::serve {

class IoThread {
 public:
  static Result<std::shared_ptr<IoThread>> start(int index);
  virtual ~IoThread() = default;

  virtual boost::asio::io_context& context() = 0;
  virtual bool on_it() const = 0;  // the caller runs on this thread

  // In the order of the calls. Dropped after stop().
  virtual void post(std::function<void()> work) = 0;
  virtual void post_after(std::chrono::milliseconds delay, std::function<void()> work) = 0;

  // Where bytes are read to before anybody knows what they are. Its content lasts until the thread waits again. On the thread
  // only.
  virtual std::span<char> scratch() = 0;

  // Ends the thread and waits for it; what was posted before has run then, timers are dropped. Not from the thread itself.
  virtual void stop() = 0;
};

}  // namespace choral::serve
