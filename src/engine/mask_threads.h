// Renews masks of grammars whose work has no bound (AnswerGrammar::is_bounded) beside the engine's thread. A step waits for them
// a short while; a row without its mask then sits out steps until it has one. The waits for an answer are counted against an
// allowance for each of its masks. When it is overdrawn, steps do not wait for the answer any more, and a thread that takes only
// what others leave of the machine computes its masks. The total cost of an answer is counted too; beyond its budget the answer
// ends with an error.
// A call of the library cannot be stopped. A thread in a long one counts as stuck until it is back, and another takes its place;
// the number of stuck ones is limited. Costs are times of computing (a thread's own clock), so a loaded machine overdraws no
// answer. Engine thread only.
#pragma once

#include <pthread.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "engine/engine_request.h"

namespace choral::engine {

// Seconds that a thread has computed; any thread may ask.
using ThreadClock = std::function<double(pthread_t thread)>;
double computed_s(pthread_t thread);

struct MaskLimits {
  int threads = 0;                        // 0: by the machine
  int most_stuck = 8;                     // threads beside those
  double step_wait_s = 0.002;             // the longest wait of a step, and the allowance of each mask
  double allowance_s = 0.0003;            // what an answer's masks may cost for ever and be waited for, for each 50,000 tokens
  double first_credit_s = 0.02;           // and on top of that, once
  double stuck_s = 0.005;                 // a thread that computes one for longer is stuck
  double most_mask_s = 1;                 // a single mask
  double most_answer_s = 2;               // all masks of an answer,
  double most_answer_per_mask_s = 0.001;  // and so much more for each
  ThreadClock clock = computed_s;
};

class MaskThreads {
 public:
  // For so many rows.
  explicit MaskThreads(int max_num_seqs, const MaskLimits& limits = {});
  // Threads that are stuck are left to end by themselves, on what they hold.
  ~MaskThreads();
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  // Called from any thread when a mask has come for which no step waited; once this returns, the one before is not.
  void set_wake(std::function<void()> wake);
  // Before a request that needs them is taken in. resource_exhausted: there are no threads, or all are stuck.
  Status start();
  // The mask behind the last token is to be renewed; the request sits out until it is taken.
  void post(EngineRequest& request);
  // Waits as long as is worth it, then calls settle(request, status) for each whose mask is there, which is in steps again, or
  // will not be. deadline_exceeded: over its budget.
  using Settle = FunctionRef<void(EngineRequest& request, Status status)>;
  void take(Settle settle);
  void forget(const EngineRequest& request);  // it has ended

  // Some are late: take() is to be called now and then even if nobody wakes.
  bool has_late() const { return late_ > 0; }
  static constexpr double kLookAgainS = 0.1;

 private:
  struct Job;
  struct Thread;
  struct Shared;  // with the threads, which may outlive this
  struct Taken {
    EngineRequest* request = nullptr;
    Status status;
  };
  static void work(const std::shared_ptr<Shared>& shared, Thread& self);
  static void look_ahead(const Shared& shared, const Thread& self, Job& job);
  Status add_thread(bool quick);
  void refill();
  bool is_complete() const;
  void set_stuck(Thread& thread);
  void look_at(Job& job);
  Status verdict(const Job& job, double cost_s) const;
  double allowance_s(const AnswerGrammar& grammar) const;
  void charge(AnswerGrammar& grammar, double due_s, double cost_s) const;

  const MaskLimits limits_;
  const std::shared_ptr<Shared> shared_;
  std::vector<Job*> posted_;  // in order
  std::vector<Taken> taken_;  // take()'s own
  int late_ = 0;              // of those posted, as of the last take()
  bool lacks_threads_ = false;
};

}  // namespace choral::engine
