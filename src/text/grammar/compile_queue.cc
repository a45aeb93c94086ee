#include "text/grammar/compile_queue.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/out_of_memory.h"
#include "base/thread.h"

namespace choral::text {

struct CompileQueue::Task {
  std::string key;
  Job job;
  int waiting = 0;                                // callers
  double begun_s = -1;                            // when a thread took it
  std::optional<Result<CompiledGrammar>> result;  // set once
};

struct CompileQueue::Shared {
  Shared(int thread_count, size_t max_waiting, double limit)
      : max_threads(thread_count), max_queued(max_waiting), limit_s(limit) {}

  const int max_threads;
  const size_t max_queued;
  const double limit_s;
  std::mutex mutex;
  std::condition_variable work_came, work_done;
  std::deque<std::shared_ptr<Task>> queued;
  std::vector<std::shared_ptr<Task>> running;
  std::vector<std::thread> threads;
  int idle = 0, ended = 0;
  bool stopping = false;
};

CompileQueue::CompileQueue(int threads, size_t max_waiting, double limit_s)
    : shared_(std::make_shared<Shared>(threads, max_waiting, limit_s)) {}

CompileQueue::~CompileQueue() {
  std::vector<std::thread> threads;
  bool all_ended;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->queued.clear();
    threads = std::move(shared_->threads);
    shared_->work_came.notify_all();
    all_ended = shared_->work_done.wait_for(lock, std::chrono::duration<double>(shared_->limit_s),
                                            [&] { return shared_->ended == static_cast<int>(threads.size()); });
  }
  if (!all_ended)
    CHORAL_LOG(kWarn, "a grammar is still being compiled, past its limit of {} s; it is left alone", shared_->limit_s);
  for (std::thread& thread : threads) {
    if (all_ended) {
      thread.join();
    } else {
      thread.detach();  // they hold what they work on
    }
  }
}

void CompileQueue::work(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (!shared->stopping) {
    if (shared->queued.empty()) {
      ++shared->idle;
      shared->work_came.wait(lock, [&] { return shared->stopping || !shared->queued.empty(); });
      --shared->idle;
      continue;
    }
    const std::shared_ptr<Task> task = shared->queued.front();
    shared->queued.pop_front();
    task->begun_s = now_s();
    shared->running.push_back(task);
    lock.unlock();
    auto result = or_out_of_memory("compiling a grammar", [&] { return task->job(); });
    task->job = nullptr;
    lock.lock();
    task->result = std::move(result);
    std::erase(shared->running, task);
    shared->work_done.notify_all();
  }
  ++shared->ended;
  shared->work_done.notify_all();
}

// With the lock held.
Status CompileQueue::admit(const std::shared_ptr<Task>& task) {
  Shared& shared = *shared_;
  const double now = now_s();
  const auto overdue = std::count_if(shared.running.begin(), shared.running.end(),
                                     [&](const auto& each) { return now - each->begun_s > shared.limit_s; });
  if (overdue >= shared.max_threads) {
    return resource_exhausted("all {} threads that compile grammars are held by ones that take longer than {} s; try again later",
                              shared.max_threads, shared.limit_s);
  }
  const size_t free_threads = static_cast<size_t>(shared.max_threads) - shared.running.size();
  if (shared.queued.size() >= shared.max_queued + free_threads) {
    return resource_exhausted("{} grammars wait to be compiled; try again later", shared.queued.size());
  }
  if (shared.idle <= static_cast<int>(shared.queued.size()) && static_cast<int>(shared.threads.size()) < shared.max_threads) {
    auto thread = start_thread("a thread that compiles grammars", [shared = shared_] { work(shared); });
    if (thread.ok()) {
      shared.threads.push_back(std::move(*thread));
    } else if (shared.threads.empty()) {
      return std::move(thread).status();
    }
  }
  shared.queued.push_back(task);
  shared.work_came.notify_one();
  return {};
}

Result<CompiledGrammar> CompileQueue::run(const std::string& key, Job job) {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  std::shared_ptr<Task> task;
  const auto same = [&key](const auto& each) { return each->key == key; };
  if (const auto at = std::find_if(shared.queued.begin(), shared.queued.end(), same); at != shared.queued.end()) {
    task = *at;
  } else if (const auto in = std::find_if(shared.running.begin(), shared.running.end(), same); in != shared.running.end()) {
    task = *in;
  } else {
    task = std::make_shared<Task>();
    task->key = key;
    task->job = std::move(job);
    CHORAL_RETURN_IF_ERROR(admit(task));
  }
  ++task->waiting;
  const bool done =
      shared.work_done.wait_for(lock, std::chrono::duration<double>(shared.limit_s), [&] { return task->result.has_value(); });
  --task->waiting;
  if (done) return *task->result;
  if (task->begun_s >= 0) {
    return deadline_exceeded("compiling this grammar takes longer than {} s; make it smaller", shared.limit_s);
  }
  if (task->waiting == 0) std::erase(shared.queued, task);
  return resource_exhausted("this grammar waited {} s behind others that are being compiled; try again later", shared.limit_s);
}

}  // namespace choral::text
