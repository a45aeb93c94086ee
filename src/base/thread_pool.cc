#include "base/thread_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/cpu_share.h"
#include "base/spin_budget.h"
#include "base/task_board.h"
#include "base/thread.h"
#include "base/thread_affinity.h"
#include "base/thread_plan.h"

namespace choral {
namespace {

std::vector<int> domains_of(const ThreadPlan& plan) {
  std::vector<int> domains;
  for (const auto& seat : plan.seats) domains.push_back(seat.domain);
  return domains;
}

}  // namespace

class ThreadPool::Team {
 public:
  explicit Team(const ThreadPlan& plan) : plan_(plan), board_(domains_of(plan)) {}
  Status start();
  ~Team();

  const ThreadPlan& plan() const { return plan_; }
  int64_t shared_tasks() const { return shared_tasks_.load(std::memory_order_relaxed); }
  enum class User : uint8_t { kNobody, kOwner, kGuest };
  // Who has it: `user` from now on if it was nobody, until `run` ends.
  User begin(User user) {
    User before = User::kNobody;
    user_.compare_exchange_strong(before, user, std::memory_order_acquire);
    return before;
  }
  void run(int64_t n, int64_t grain, const Body& body);

 private:
  void run_worker(int thread);
  void help(int thread);

  const ThreadPlan plan_;
  std::atomic<User> user_{User::kNobody};
  // Written by the caller while no task is open and nobody inside.
  struct alignas(64) Task {
    const Body* body = nullptr;
    int64_t n = 0, grain = 1;
  } task_;
  TaskBoard board_;
  std::atomic<int64_t> shared_tasks_{0};
  SpinBudget callers_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};  // thrown_ is set
  std::mutex thrown_mutex_;
  std::exception_ptr thrown_;  // the first of a task
  std::vector<std::thread> workers_;
};

Status ThreadPool::Team::start() {
  const int threads = board_.threads();
  workers_.reserve(threads);
  for (int i = 1; i < threads; ++i) {
    CHORAL_TRY(auto worker, start_thread(fmt::format("compute thread {} of {}", i + 1, threads), [this, i] { run_worker(i); }));
    workers_.push_back(std::move(worker));
  }
  return {};
}

ThreadPool::Team::~Team() {
  stop_.store(true);
  board_.open(0);
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::Team::run(int64_t n, int64_t grain, const Body& body) {
  const struct Ended {
    Team& team;
    ~Ended() { team.user_.store(User::kNobody, std::memory_order_release); }
  } ended{*this};
  if (n <= 0) return;
  if (board_.threads() == 1 || n <= grain) {
    body(0, n, 0);
    return;
  }
  shared_tasks_.fetch_add(1, std::memory_order_relaxed);
  task_ = {&body, n, grain};
  board_.open(ceil_div(n, grain));
  help(0);
  board_.close();
  callers_.wait([this] { return board_.is_left(); }, [this] { board_.sleep_until_left(); });
  if (failed_.exchange(false, std::memory_order_relaxed)) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void ThreadPool::Team::help(int thread) {
  try {
    board_.work(thread, [this, thread, task = task_](int64_t chunk) {
      const int64_t begin = chunk * task.grain;
      (*task.body)(begin, std::min(begin + task.grain, task.n), thread);
    });
  } catch (...) {
    const std::lock_guard lock(thrown_mutex_);
    if (!failed_.exchange(true)) thrown_ = std::current_exception();
  }
}

void ThreadPool::Team::run_worker(int thread) {
  stay_on(plan_.seats[thread].cpus);  // where that fails it is the slower for it, no more
  SpinBudget budget;
  for (TaskBoard::Seen seen = 0;;) {
    budget.wait([&] { return board_.has_news(thread, seen); }, [&] { board_.sleep_until_news(seen); });
    if (!board_.join(thread, seen)) continue;
    if (stop_.load(std::memory_order_relaxed)) return;  // the last task, which nobody waits for
    help(thread);
    board_.leave(thread);
  }
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::make(int threads) { return make(ThreadPlan::anywhere(threads)); }

Result<std::unique_ptr<ThreadPool>> ThreadPool::make(const ThreadPlan& plan) {
  std::unique_ptr<ThreadPool> pool(new ThreadPool());
  CHORAL_RETURN_IF_ERROR(pool->start(plan));
  return pool;
}

ThreadPool::ThreadPool(int threads) {
  const Status started = start(ThreadPlan::anywhere(threads));
  CHORAL_CHECK(started.ok(), started.message());
}

ThreadPool::~ThreadPool() = default;

Status ThreadPool::start(const ThreadPlan& plan) {
  size_ = static_cast<int>(plan.seats.size());
  CHORAL_CHECK(size_ > 0, "a pool has its caller's seat");
  team_ = std::make_unique<Team>(plan);
  return team_->start();
}

const ThreadPlan& ThreadPool::plan() const { return team_->plan(); }

int64_t ThreadPool::shared_tasks() const { return team_->shared_tasks(); }

void ThreadPool::parallel_for(int64_t n, int64_t grain, Body body) {
  CHORAL_DCHECK(grain > 0, "a chunk has at least one row");
  const auto before = team_->begin(Team::User::kOwner);
  CHORAL_CHECK(before != Team::User::kOwner, "parallel_for while a task of this pool runs: its body calls, or a second thread");
  if (before == Team::User::kNobody) {
    team_->run(n, grain, body);
  } else {
    for (int64_t begin = 0; begin < n; begin += grain) body(begin, std::min(begin + grain, n), 0);
  }
}

bool ThreadPool::try_parallel_for(int64_t n, int64_t grain, Body body) {
  CHORAL_DCHECK(grain > 0, "a chunk has at least one row");
  const bool began = team_->begin(Team::User::kGuest) == Team::User::kNobody;
  if (began) team_->run(n, grain, body);
  return began;
}

int ThreadPool::default_size() { return cpu_share().threads(); }

}  // namespace choral
