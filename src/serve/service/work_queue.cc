#include "serve/service/work_queue.h"

#include "base/log.h"
#include "base/thread.h"

namespace choral::serve {

Result<std::unique_ptr<WorkQueue>> WorkQueue::make(std::string_view what, int threads, size_t most_waiting) {
  std::unique_ptr<WorkQueue> queue(new WorkQueue(most_waiting));
  for (int i = 0; i < threads; ++i) {
    CHORAL_TRY(std::thread thread, start_thread(what, [q = queue.get()] { q->run(); }));
    queue->threads_.push_back(std::move(thread));
  }
  return queue;
}

WorkQueue::~WorkQueue() { stop(); }

bool WorkQueue::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || waiting_.size() >= most_waiting_) return false;
  waiting_.push_back(std::move(work));
  changed_.notify_one();
  return true;
}

void WorkQueue::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(waiting_);
    changed_.notify_all();
  }
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkQueue::run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
      if (stopped_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    // The fault boundary of a request outside the engine: a library's exception ends the request, not the thread.
    try {
      work();
    } catch (const std::exception& error) {
      CHORAL_LOG(kError, "a request ended with an exception: {}", error.what());
    }
  }
}

}  // namespace choral::serve
