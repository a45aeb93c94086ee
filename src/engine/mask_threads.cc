#include "engine/mask_threads.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/thread_pool.h"
#include "engine/spare_memory.h"

namespace choral::engine {
namespace {

constexpr int kMostMaskThreads = 4;
constexpr int kIdlePriority = 19;
constexpr double kMostAhead = 5;  // times a single mask's most time
constexpr double kTokensOfAllowance = 50'000;
constexpr std::chrono::seconds kLastWait{2};

MaskLimits with_threads(MaskLimits limits) {
  if (limits.threads == 0) limits.threads = std::clamp(ThreadPool::default_size() / 2, 1, kMostMaskThreads);
  return limits;
}

}  // namespace

double computed_s(pthread_t thread) {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A mask that is wanted. Its grammar is the thread's while it runs, and the engine's before and after.
struct MaskThreads::Job {
  enum class State : uint8_t { kFree, kQueued, kRunning, kDone };
  State state = State::kFree;
  bool quick = false;
  bool awaited = false;              // by steps
  EngineRequest* request = nullptr;  // null: nobody wants it any more
  std::shared_ptr<AnswerGrammar> grammar;
  double allowance_s = 0;  // a mask that took longer is not looked ahead of
  double due_s = 0;        // what the mask took that is due
  std::atomic<bool> looks_ahead = false;
  Thread* thread = nullptr;  // that runs it
  Job* next = nullptr;       // in its queue
  Status status;
  double cost_s = 0;
};

struct MaskThreads::Thread {
  pthread_t id{};
  pid_t system_id = 0;
  bool quick = false;  // else it takes what others leave of the machine
  bool stuck = false;  // ends with its job
  bool ended = false;
  double begun_s = 0;  // its job
};

struct MaskThreads::Shared {
  Shared(size_t most_jobs, ThreadClock thread_clock) : clock(std::move(thread_clock)), jobs(most_jobs) {
    for (Job& job : jobs) free.push_back(&job);
  }

  struct Queue {
    Job* first = nullptr;
    std::condition_variable came;

    void push(Job& job) {
      Job** at = &first;
      while (*at != nullptr) at = &(*at)->next;
      *at = &job;
      job.next = nullptr;
      came.notify_one();
    }
    void remove(const Job& job) {
      Job** at = &first;
      while (*at != &job) at = &(*at)->next;
      *at = job.next;
    }
  };
  Queue& queue_of(bool is_quick) { return is_quick ? quick : slow; }
  // What the job held, for the caller to drop without the lock.
  std::shared_ptr<AnswerGrammar> release(Job& job) {
    job.state = Job::State::kFree;
    job.request = nullptr;
    job.status = {};
    job.looks_ahead = false;
    free.push_back(&job);
    return std::move(job.grammar);
  }
  int count(bool is_quick, bool is_stuck) const {
    return static_cast<int>(std::count_if(threads.begin(), threads.end(), [&](const auto& each) {
      return !each->ended && each->stuck == is_stuck && (is_stuck || each->quick == is_quick);
    }));
  }

  const ThreadClock clock;
  std::mutex mutex;
  std::vector<Job> jobs;
  std::vector<Job*> free;
  Queue quick, slow;
  std::condition_variable done, ended;
  std::function<void()> wake;
  std::vector<std::unique_ptr<Thread>> threads;
  int awaited = 0;    // jobs that a step may wait for, not done yet
  double wait_s = 0;  // their allowances
  bool stopping = false;
};

MaskThreads::MaskThreads(int max_num_seqs, const MaskLimits& limits)
    : limits_(with_threads(limits)),
      shared_(
          std::make_shared<Shared>(static_cast<size_t>(max_num_seqs + limits_.threads + limits_.most_stuck + 1), limits_.clock)) {
  posted_.reserve(max_num_seqs);
  taken_.reserve(max_num_seqs);
}

MaskThreads::~MaskThreads() {
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->wake = nullptr;
  shared_->quick.came.notify_all();
  shared_->slow.came.notify_all();
  const auto all_ended = [&] {
    return std::all_of(shared_->threads.begin(), shared_->threads.end(), [](const auto& each) { return each->ended; });
  };
  if (!shared_->ended.wait_for(lock, kLastWait, all_ended))
    CHORAL_LOG(kWarn, "the mask of a grammar is still being computed; it is left alone");
}

void MaskThreads::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(shared_->mutex);
  shared_->wake = std::move(wake);
}

void MaskThreads::work(const std::shared_ptr<Shared>& shared, Thread& self) {
  std::unique_lock lock(shared->mutex);
  self.id = pthread_self();
  self.system_id = gettid();
  if (!self.quick) setpriority(PRIO_PROCESS, static_cast<id_t>(self.system_id), kIdlePriority);
  Shared::Queue& queue = shared->queue_of(self.quick);
  while (!shared->stopping && !self.stuck) {
    if (queue.first == nullptr) {
      queue.came.wait(lock);
      continue;
    }
    Job& job = *queue.first;
    queue.remove(job);
    job.state = Job::State::kRunning;
    job.thread = &self;
    self.begun_s = shared->clock(self.id);
    lock.unlock();
    Status status = or_out_of_memory("the mask of a grammar cannot be computed", [&] { return job.grammar->advance(); });
    job.due_s = shared->clock(self.id) - self.begun_s;
    if (status.ok() && job.due_s < job.allowance_s && job.grammar->has_wish()) {
      job.looks_ahead = true;
      look_ahead(*shared, self, job);
    }
    const double cost_s = shared->clock(self.id) - self.begun_s;
    lock.lock();
    job.thread = nullptr;
    if (job.request == nullptr) {
      auto last = shared->release(job);
      lock.unlock();
      last.reset();
      lock.lock();
      continue;
    }
    job.status = std::move(status);
    job.cost_s = cost_s;
    job.state = Job::State::kDone;
    if (!job.awaited) {
      if (shared->wake) shared->wake();
    } else if (--shared->awaited == 0) {
      shared->done.notify_one();
    }
  }
  self.ended = true;
  shared->ended.notify_all();
}

// The mask that is due is there. What lies ahead is worth so much time, and no error: without it nothing is guessed.
void MaskThreads::look_ahead(const Shared& shared, const Thread& self, Job& job) {
  const double most_s = job.allowance_s * (1 + job.grammar->wish.most());
  static_cast<void>(or_out_of_memory("masks ahead cannot be computed", [&] {
    job.grammar->grant_wish([&] { return shared.clock(self.id) - self.begun_s < most_s; });
    return Status();
  }));
}

// With the lock, as all below.
Status MaskThreads::add_thread(bool quick) {
  auto& threads = shared_->threads;
  std::erase_if(threads, [](const auto& each) { return each->ended; });
  threads.push_back(std::make_unique<Thread>());
  Thread& self = *threads.back();
  self.quick = quick;
  auto started = start_thread("a thread for the masks of grammars", [shared = shared_, &self] { work(shared, self); });
  if (started.ok()) {
    started->detach();  // it may be stuck for longer than we live
    return {};
  }
  threads.pop_back();
  return std::move(started).status();
}

void MaskThreads::refill() {
  const auto fill = [this](bool quick, int wanted) -> Status {
    while (shared_->count(quick, false) < wanted && shared_->count(quick, true) < limits_.most_stuck) {
      CHORAL_RETURN_IF_ERROR(add_thread(quick));
    }
    return {};
  };
  for (const Status& status : {fill(true, limits_.threads), fill(false, 1)}) {
    if (!status.ok()) CHORAL_LOG(kWarn, "{}", status.message());
  }
  lacks_threads_ = !is_complete();
}

bool MaskThreads::is_complete() const {
  return shared_->count(true, false) == limits_.threads && shared_->count(false, false) == 1;
}

Status MaskThreads::start() {
  const std::lock_guard lock(shared_->mutex);
  if (is_complete()) return {};
  if (shared_->count(true, true) >= limits_.most_stuck) {
    return resource_exhausted("{} threads are held by grammars of other answers that take too long; try again later",
                              limits_.most_stuck);
  }
  refill();
  if (shared_->count(true, false) > 0 && shared_->count(false, false) > 0) return {};
  return resource_exhausted("there is no thread for the masks of a grammar; raise the limits of threads and memory");
}

// It goes on at the least priority, which only the system's administrator could take back, and ends with what it does.
void MaskThreads::set_stuck(Thread& thread) {
  if (thread.stuck) return;
  thread.stuck = lacks_threads_ = true;
  setpriority(PRIO_PROCESS, static_cast<id_t>(thread.system_id), kIdlePriority);
}

void MaskThreads::post(EngineRequest& request) {
  MaskAccount& account = request.grammar->account;
  if (account.masks == 0) account.credit_s = limits_.first_credit_s;
  const std::lock_guard lock(shared_->mutex);
  CHORAL_CHECK(!shared_->free.empty(), "there is a job for each row and each thread");
  Job& job = *shared_->free.back();
  shared_->free.pop_back();
  job.request = &request;
  job.grammar = request.grammar;
  job.state = Job::State::kQueued;
  job.quick = job.awaited = account.credit_s >= 0;
  job.allowance_s = allowance_s(*request.grammar);
  if (job.awaited) {
    ++shared_->awaited;
    const auto& wish = request.grammar->wish;
    shared_->wait_s += job.allowance_s * (1 + wish.most());
  }
  shared_->queue_of(job.quick).push(job);
  posted_.push_back(&job);
  request.sits_out = true;
}

void MaskThreads::take(Settle settle) {
  late_ = 0;
  if (posted_.empty()) return;
  {
    std::unique_lock lock(shared_->mutex);
    if (shared_->awaited > 0) {
      const std::chrono::duration<double> longest(limits_.step_wait_s + shared_->wait_s);
      shared_->done.wait_for(lock, longest, [this] { return shared_->awaited == 0; });
    }
    shared_->wait_s = 0;
    for (Job* job : posted_) look_at(*job);
    std::erase_if(posted_, [](const Job* job) { return job->request == nullptr; });
    if (lacks_threads_) refill();
  }
  for (Taken& taken : taken_) {
    taken.request->sits_out = false;
    settle(*taken.request, std::move(taken.status));
  }
  taken_.clear();
}

// Takes it, or counts it as late.
void MaskThreads::look_at(Job& job) {
  if (job.state == Job::State::kDone) {
    charge(*job.request->grammar, job.due_s, job.cost_s);
    Status status = job.status.ok() ? verdict(job, 0) : std::move(job.status);
    taken_.push_back({job.request, std::move(status)});
    shared_->release(job);  // the request has the grammar too
    return;
  }
  if (job.awaited) {
    job.awaited = false;
    --shared_->awaited;
  }
  ++late_;
  if (job.state != Job::State::kRunning) return;
  const double cost_s = shared_->clock(job.thread->id) - job.thread->begun_s;
  // A call ahead of the answer may turn out dear: then it waits, and longer than for its own mask.
  const bool is_ahead = job.looks_ahead && cost_s < kMostAhead * limits_.most_mask_s;
  Status status = is_ahead ? Status() : verdict(job, cost_s);
  if (!status.ok() || (job.thread->quick && cost_s > limits_.stuck_s)) set_stuck(*job.thread);
  if (status.ok()) return;
  --late_;
  taken_.push_back({job.request, std::move(status)});
  job.request = nullptr;  // its thread releases it
}

Status MaskThreads::verdict(const Job& job, double cost_s) const {
  const MaskAccount& account = job.request->grammar->account;
  const double most_s = limits_.most_answer_s + limits_.most_answer_per_mask_s * static_cast<double>(account.masks);
  if (cost_s <= limits_.most_mask_s && account.spent_s + cost_s <= most_s) return {};
  return deadline_exceeded(
      "structured_output: to say which tokens may come next took {:.1f} s of computing in the {} tokens so far, which is over "
      "what an "
      "answer has; write the grammar or expression so that a text can be read in one way only (no rule that is followed by "
      "itself "
      "or may be empty twice), or lower max_tokens",
      account.spent_s + cost_s, account.masks + (cost_s > 0 ? 1 : 0));
}

// A mask takes longer over a larger vocabulary, and so does a step.
double MaskThreads::allowance_s(const AnswerGrammar& grammar) const {
  return limits_.allowance_s * std::max(1.0, 32.0 * static_cast<double>(grammar.mask().size()) / kTokensOfAllowance);
}

// An answer has time for the masks that it needs; those ahead count only for how long steps wait for it.
void MaskThreads::charge(AnswerGrammar& grammar, double due_s, double cost_s) const {
  MaskAccount& account = grammar.account;
  ++account.masks;
  account.spent_s += due_s;
  const double allowed_s = static_cast<double>(grammar.take_masks_made()) * allowance_s(grammar);
  account.credit_s = std::min(account.credit_s + allowed_s, limits_.first_credit_s) - cost_s;
}

void MaskThreads::forget(const EngineRequest& request) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const Job* job) { return job->request == &request; });
  if (found == posted_.end()) return;
  const std::lock_guard lock(shared_->mutex);
  Job& job = **found;
  posted_.erase(found);
  if (job.awaited && job.state != Job::State::kDone) --shared_->awaited;
  job.awaited = false;
  if (job.state == Job::State::kRunning) {
    job.request = nullptr;  // its thread releases it
    return;
  }
  if (job.state == Job::State::kQueued) shared_->queue_of(job.quick).remove(job);
  shared_->release(job);  // the request, which ends, has the grammar too
}

}  // namespace choral::engine
