// The one compute pool. `parallel_for` splits [0, n) into chunks of `grain`; the caller works too and returns when all are done.
// Every thread begins with its own share of the chunks and then helps the others, those of its own cache first: what one
// operation wrote, the next one mostly reads on the same core.
// Work is divided by output only, so results do not depend on the number of threads (invariant 1).
// A worker joins a task when it gets to it: where somebody else has its CPU (an adapter being loaded, say), the caller does not
// wait for it to come and find that nothing is left. Workers spin for a moment after each task and then sleep.
// One task at a time. A pool has one owner, whose thread calls parallel_for: a body that calls it again, and a second thread that
// does so meanwhile, end the process. Whoever is not the owner (a plug-in's own thread) asks by try_parallel_for; while the pool
// works for such a guest, the owner computes its tasks alone rather than wait. No allocation per call.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"
#include "base/status.h"

namespace choral {

struct ThreadPlan;

class ThreadPool {
 public:
  // body(begin, end, thread) with 0 <= thread < size(). A thread takes the chunks of its own share in order and then those of
  // others.
  using Body = FunctionRef<void(int64_t begin, int64_t end, int thread)>;

  // At least 1; the caller counts as one. resource_exhausted when the system does not give so many.
  static Result<std::unique_ptr<ThreadPool>> make(int threads);
  // One for each seat, at its CPUs; the calling thread is left where it is.
  static Result<std::unique_ptr<ThreadPool>> make(const ThreadPlan& plan);
  // The same where threads are no question of the machine: one, or a test's few. Without them the process ends.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }
  const ThreadPlan& plan() const;
  // What a body throws (memory that cannot be had) reaches the caller when all threads are out; the rest may be left undone.
  void parallel_for(int64_t n, int64_t grain, Body body);
  // The same for a guest, unless a task runs already, this thread's own or another's: then false, and nothing was called. A
  // guest's body has no use for `thread`: the owner may be thread 0 beside it.
  bool try_parallel_for(int64_t n, int64_t grain, Body body);

  // Tasks that threads shared since the pool began: what was one chunk is not one. Of the owner's thread.
  int64_t shared_tasks() const;

  // A thread for each physical core this process may run on (SMT siblings share one multiplier) and has the time of: cpu_share.h.
  static int default_size();

 private:
  class Team;

  ThreadPool() = default;
  Status start(const ThreadPlan& plan);

  std::unique_ptr<Team> team_;
  int size_ = 1;
};

}  // namespace choral
