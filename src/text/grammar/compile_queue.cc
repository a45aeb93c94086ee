#include "text/grammar/compile_queue.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
namespace {

// Of ten parts of a busy processor one, so that a compilation still ends in time; and next to none once nobody waits for it.
constexpr int kLowPriority = 10, kLeastPriority = 19;

using Seconds = std::chrono::duration<double>;

}  // namespace

struct CompileQueue::Task {
  std::string key;
  Lane lane;
  Job job;
  int waiting = 0;                                // callers
  double begun_s = -1;                            // when a thread took it
  Thread* thread = nullptr;                       // that works on it
  std::optional<Result<CompiledGrammar>> result;  // set once
};

struct CompileQueue::Thread {
  Lane lane;
  pid_t system_id = 0;
  std::shared_ptr<Task> task;  // that it works on
  bool aside = false;          // ends with its task
  bool ended = false;
};

struct CompileQueue::Shared {
  explicit Shared(const CompileLimits& given) : limits(given) {}

  using Tasks = std::deque<std::shared_ptr<Task>>;
  Tasks& queued(Lane lane) { return queues[static_cast<size_t>(lane)]; }
  std::condition_variable& came(Lane lane) { return work_came[static_cast<size_t>(lane)]; }
  template <class Which>
  int count(Which&& which) const {
    return static_cast<int>(
        std::count_if(threads.begin(), threads.end(), [&](const auto& each) { return !each->ended && which(*each); }));
  }
  int aside() const {
    return count([](const Thread& each) { return each.aside; });
  }
  int in_lane(Lane lane) const {
    return count([lane](const Thread& each) { return !each.aside && each.lane == lane; });
  }
  int idle(Lane lane) const {
    return count([lane](const Thread& each) { return !each.aside && each.lane == lane && !each.task; });
  }
  int most(Lane lane) const { return lane == Lane::kSmall ? limits.threads : 1; }
  double patience_s() const { return std::min(limits.patience_s, limits.limit_s); }

  const CompileLimits limits;
  std::mutex mutex;
  std::array<std::condition_variable, 2> work_came;
  std::condition_variable work_done;
  std::array<Tasks, 2> queues;
  std::vector<std::unique_ptr<Thread>> threads;
  bool stopping = false;
};

CompileQueue::CompileQueue(const CompileLimits& limits) : shared_(std::make_shared<Shared>(limits)) {}

CompileQueue::~CompileQueue() {
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  for (auto& queue : shared_->queues) queue.clear();
  for (auto& came : shared_->work_came) came.notify_all();
  const auto all_ended = [&] { return shared_->count([](const Thread&) { return true; }) == 0; };
  if (!shared_->work_done.wait_for(lock, Seconds(shared_->limits.limit_s), all_ended)) {
    CHORAL_LOG(kWarn, "a grammar is still being compiled, past its limit of {} s; it is left alone", shared_->limits.limit_s);
  }
}

void CompileQueue::work(const std::shared_ptr<Shared>& shared, Thread& self) {
  std::unique_lock lock(shared->mutex);
  self.system_id = gettid();
  auto& queue = shared->queued(self.lane);
  while (!shared->stopping && !self.aside) {
    if (queue.empty()) {
      shared->came(self.lane).wait(lock);
      continue;
    }
    self.task = queue.front();
    queue.pop_front();
    self.task->begun_s = now_s();
    self.task->thread = &self;
    lock.unlock();
    auto result = or_out_of_memory("compiling a grammar", [&] { return self.task->job(); });
    self.task->job = nullptr;
    lock.lock();
    self.task->result = std::move(result);
    self.task->thread = nullptr;
    self.task.reset();
    shared->work_done.notify_all();
  }
  self.ended = true;
  shared->work_done.notify_all();
}

// With the lock held, as what follows.
Status CompileQueue::add_thread(Lane lane) {
  auto& threads = shared_->threads;
  std::erase_if(threads, [](const auto& each) { return each->ended; });
  threads.push_back(std::make_unique<Thread>(Thread{.lane = lane, .task = nullptr}));
  auto thread =
      start_thread("a thread that compiles grammars", [shared = shared_, &self = *threads.back()] { work(shared, self); });
  if (!thread.ok()) {
    threads.pop_back();
    return std::move(thread).status();
  }
  thread->detach();  // it may compile for longer than we live, on what it holds
  return {};
}

void CompileQueue::set_aside(Thread& thread) {
  if (thread.aside || shared_->aside() >= shared_->limits.most_aside) return;
  thread.aside = true;
  setpriority(PRIO_PROCESS, static_cast<id_t>(thread.system_id), kLowPriority);
  if (shared_->queued(thread.lane).empty()) return;  // the next one that comes gets a thread
  if (const Status added = add_thread(thread.lane); !added.ok()) CHORAL_LOG(kWarn, "{}", added.message());
}

Status CompileQueue::admit(const std::shared_ptr<Task>& task) {
  Shared& shared = *shared_;
  auto& queue = shared.queued(task->lane);
  const double now = now_s();
  const auto overdue = [&](const Thread& each) {
    return !each.aside && each.lane == task->lane && each.task && now - each.task->begun_s > shared.patience_s();
  };
  for (const auto& thread : shared.threads) {
    if (!thread->ended && overdue(*thread)) set_aside(*thread);
  }
  if (shared.count(overdue) >= shared.most(task->lane)) {
    return resource_exhausted("all threads that compile grammars are held by ones that take longer than {} s; try again later",
                              shared.patience_s());
  }
  const auto free_threads = static_cast<size_t>(shared.most(task->lane) - shared.in_lane(task->lane) + shared.idle(task->lane));
  if (queue.size() >= shared.limits.max_waiting + free_threads) {
    return resource_exhausted("{} grammars wait to be compiled; try again later", queue.size());
  }
  if (shared.idle(task->lane) <= static_cast<int>(queue.size()) && shared.in_lane(task->lane) < shared.most(task->lane)) {
    Status added = add_thread(task->lane);
    if (!added.ok() && shared.in_lane(task->lane) == 0) return added;
  }
  queue.push_back(task);
  shared.came(task->lane).notify_one();
  return {};
}

Result<CompiledGrammar> CompileQueue::run(const std::string& key, Lane lane, Job job) {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  std::shared_ptr<Task> task;
  const auto same = [&key](const auto& each) { return each->key == key; };
  auto& queue = shared.queued(lane);
  if (const auto at = std::find_if(queue.begin(), queue.end(), same); at != queue.end()) {
    task = *at;
  } else if (const auto in = std::find_if(shared.threads.begin(), shared.threads.end(),
                                          [&](const auto& each) { return each->task && same(each->task); });
             in != shared.threads.end()) {
    task = (*in)->task;
  } else {
    task = std::make_shared<Task>(Task{.key = key, .lane = lane, .job = std::move(job), .result = {}});
    CHORAL_RETURN_IF_ERROR(admit(task));
  }
  ++task->waiting;
  const double until_s = now_s() + shared.limits.limit_s;
  const auto is_done = [&] { return task->result.has_value(); };
  for (double left_s = shared.limits.limit_s; left_s > 0 && !is_done(); left_s = until_s - now_s()) {
    const double patience_s = task->thread != nullptr ? task->begun_s + shared.patience_s() - now_s() : shared.patience_s();
    if (task->thread != nullptr && patience_s <= 0) set_aside(*task->thread);
    shared.work_done.wait_for(lock, Seconds(patience_s > 0 ? std::min(left_s, patience_s) : left_s), is_done);
  }
  --task->waiting;
  if (is_done()) return *task->result;
  if (task->begun_s >= 0) {
    if (task->thread != nullptr) {
      set_aside(*task->thread);
      setpriority(PRIO_PROCESS, static_cast<id_t>(task->thread->system_id), kLeastPriority);
    }
    return deadline_exceeded("compiling this grammar takes longer than {} s; make it smaller", shared.limits.limit_s);
  }
  if (task->waiting == 0) std::erase(queue, task);
  return resource_exhausted("this grammar waited {} s behind others that are being compiled; try again later",
                            shared.limits.limit_s);
}

}  // namespace choral::text
