// A thread that waits for sockets and timers, and whoever is posted to it. Connections belong to one of them and are touched
// nowhere else. Thread-safe but for scratch().
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/status.h"

namespace choral::serve {

class IoThread : public std::enable_shared_from_this<IoThread> {
 public:
  static Result<std::shared_ptr<IoThread>> start(int index);
  ~IoThread() { stop(); }

  boost::asio::io_context& context() { return context_; }
  bool on_it() const { return std::this_thread::get_id() == id_; }  // the caller runs on this thread

  // In the order of the calls. Dropped after stop().
  void post(std::function<void()> work);
  void post_after(std::chrono::milliseconds delay, std::function<void()> work);

  // Where bytes are read to before anybody knows what they are. Its content lasts until the thread waits again. On the thread
  // only.
  std::span<char> scratch() { return scratch_; }

  // Ends the thread and waits for it; what was posted before has run then, timers are dropped. Not from the thread itself.
  void stop();

 private:
  void set_timer(std::chrono::milliseconds delay, std::function<void()> work);

  boost::asio::io_context context_{1};  // one thread runs it
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> idle_guard_{context_.get_executor()};
  std::vector<char> scratch_ = std::vector<char>(64 << 10);
  std::unordered_set<boost::asio::steady_timer*> timers_;  // on the thread only; their handlers own them
  std::mutex mutex_;
  bool stopped_ = false;
  std::thread thread_;
  std::thread::id id_;
};

}  // namespace choral::serve
