// The engine's loop, on its own thread: take what came in, schedule a step, run it, hand out the tokens. Callers only append to
// an inbox or wait for the loop's next turn. Answers leave through each request's Response. Thread-safe where marked; the rest
// belongs to the engine thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "choral/llm.h"
#include "engine/adapters/adapter_residency.h"
#include "engine/answer_writer.h"
#include "engine/deadlines.h"
#include "engine/engine_request.h"
#include "engine/executor.h"
#include "engine/heartbeat.h"
#include "engine/kv_journal.h"
#include "engine/mask_threads.h"
#include "engine/spare_memory.h"
#include "engine/speculation/speculator.h"
#include "engine/step_cycle.h"
#include "sched/scheduler.h"

namespace choral::engine {

// Limits beside the scheduler's.
struct EngineLimits {
  int64_t adapter_budget_bytes = 0;
  int64_t most_adapters = lora::kAnyNumber;
  int64_t max_waiting_tokens = 0;                   // of prompts and predictions; 0 = none
  int32_t kv_event_batches = 0;                     // that wait to be read; 0: no journal is kept
  int32_t most_guessed = Speculator::kMostGuessed;  // tokens of an answer in a step; 0: none
  int64_t traffic_bytes = 0;  // for what ended answers said, where tokens are guessed from it; 0: they are not
};

class EngineCore {
 public:
  // `registry` gives the adapters that requests name; `draft` guesses tokens (null: there is none). Nothing happens before
  // start().
  EngineCore(std::unique_ptr<Executor> executor, const sched::SchedulerConfig& config, std::shared_ptr<AdapterRegistry> registry,
             const EngineLimits& limits, Clock clock = now_s, const MaskLimits& mask_limits = {},
             std::unique_ptr<DraftModel> draft = nullptr);
  ~EngineCore() { stop(); }

  // Starts the engine's thread, once.
  Status start();
  // Ends it after the step in progress; then open requests end with kUnavailable (see ~EngineRequest). Not on the engine's
  // thread.
  void stop();

  // --- any thread ---
  // Takes as many, from the front, as the queue has room for, all before the next step begins, and says how many; refused when
  // that is none: with resource_exhausted, or too_large for what the queue could never hold.
  Result<size_t> add_requests(std::span<AdmittedRequest> requests);
  // All of them, before the next step begins, or none; refused likewise.
  Status add_together(std::span<AdmittedRequest> requests);
  // Whether a request with so many completions would be taken now as far as their number goes.
  Status check_room(int64_t completions) const;
  // Takes the ids, and no memory, so that it can always be done; unknown or finished ones are ignored.
  void cancel(std::list<sched::RequestId>& ids);
  // Waits until the loop has turned once, which began after the call; LLM::check_health() says more.
  Status check_health(std::chrono::milliseconds limit);
  // At once.
  EngineHeartbeat heartbeat() const { return heartbeat_.now(); }
  EngineActivity activity() const;
  int32_t most_guessed() const { return speculator_.most_guessed(); }
  // As of the last step.
  EngineStats stats() const;
  // LLM says what they do.
  Status pause(PauseMode mode);
  void resume();
  // What the device noted since the start.
  std::vector<std::string> device_notes() const;
  // LLM's.
  bool next_kv_events(KvEventBatch& batch, std::chrono::milliseconds limit) {
    return journal_ != nullptr && journal_->next(batch, limit);
  }

 private:
  // A turn of the loop that callers wait for, by number.
  using Turn = uint64_t;
  // Whether steps are computed: kEnding: of what is in flight, while later requests are held.
  enum class Flow : uint8_t { kRuns, kEnding, kPaused };
  Status wait_for_turn(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds limit);
  void put_into_inbox(AdmittedRequest& request);
  void make_room_in_inbox(size_t completions);
  Status check_places(int64_t waiting, int64_t completions) const;
  Status check_tokens(int64_t tokens) const;

  void run();
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  void wake(bool& what);
  void take_changes();
  void take_inbox();
  void admit(std::unique_ptr<EngineRequest> request);
  Status take(std::unique_ptr<sched::Request>& request);
  void retry_parked();
  void readmit_stranded();
  void cancel_one(sched::RequestId id);
  void cancel_all();
  void end_flow();
  template <class Tell>
  void drop_parked(sched::RequestId id, Tell&& tell);
  void end_late();
  void step(std::unique_lock<std::mutex>& queues);
  void take_masks();
  void begin_answers();
  void take_output(double now);
  void hand_out();
  void end_finished();
  void fail_step(const Status& status);
  void publish_stats();
  void publish_queue();
  void count_queue(EngineStats& stats) const;
  int waiting_sequences() const;
  int64_t predicted_in_queue() const;
  void publish_device_notes();
  void end_turn(Turn turn);

  std::unique_ptr<Executor> executor_;
  std::shared_ptr<AdapterRegistry> registry_;
  const int64_t max_waiting_, max_waiting_tokens_;
  const Clock clock_;
  AdapterResidency residency_;
  std::unique_ptr<KvJournal> journal_;  // null: nobody asked for one
  sched::Scheduler scheduler_;
  std::vector<std::unique_ptr<EngineRequest>> parked_;  // their adapters were never loaded before, or they are held
  bool starved_ = false;                                // the last plan was empty: everybody waits for adapters
  Flow seen_flow_ = Flow::kRuns;                        // in this turn
  StepCycle cycle_;
  Speculator speculator_;
  AnswerWriter writer_;
  MaskThreads masks_;
  const bool devices_work_beside_;  // hand_out() is called by the executor when it waits
  Deadlines deadlines_;
  int64_t prompt_tokens_ = 0;
  int64_t arrived_tokens_ = 0;  // of requests that came since a step was planned
  StepTokens step_tokens_;
  SpareMemory spare_;
  Heartbeat heartbeat_;

  // Guards the queues (scheduler_, parked_) against activity(), which only looks: the engine's thread holds it while it changes
  // them, and not while a step is computed. Taken before mutex_.
  mutable std::mutex queues_mutex_;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable inbox_changed_;
  std::condition_variable turned_;
  std::vector<std::unique_ptr<EngineRequest>> inbox_;
  int64_t inbox_places_ = 0;  // that they take in the queue: one for each beam
  int64_t inbox_tokens_ = 0, inbox_predicted_tokens_ = 0;
  int64_t predicted_waiting_tokens_ = 0;  // beside those of stats_, which are to be computed
  std::list<sched::RequestId> cancels_;
  bool stop_ = false;
  bool adapters_changed_ = false;
  bool masks_came_ = false;
  Flow flow_ = Flow::kRuns;
  bool aborts_ = false;   // what is in flight is to end
  bool resumed_ = false;  // what was held is to be taken in
  uint64_t resumes_ = 0;
  Turn turn_asked_ = 0, turn_ended_ = 0;
  EngineStats stats_;
  std::vector<std::string> device_notes_;

  std::vector<std::unique_ptr<EngineRequest>> arrivals_;  // the engine thread's side of the two lists above
  std::list<sched::RequestId> leavers_;
  std::thread thread_;
};

}  // namespace choral::engine
