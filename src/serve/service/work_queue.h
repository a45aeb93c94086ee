// Threads for work that takes too long for an I/O thread: reading bodies, templates, tokens, adapters' files. Bounded: what does
// not fit is refused, not kept. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "base/status.h"

namespace choral::serve {

class WorkQueue {
 public:
  // `what` names the threads in errors: "the threads that read requests".
  static Result<std::unique_ptr<WorkQueue>> make(std::string_view what, int threads, size_t most_waiting);
  ~WorkQueue();  // stop()
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // False: the queue is full or stopped. What `work` throws is logged.
  bool push(std::function<void()> work);
  // What runs ends, what waits is dropped.
  void stop();

 private:
  explicit WorkQueue(size_t most_waiting) : most_waiting_(most_waiting) {}
  void run();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace choral::serve
