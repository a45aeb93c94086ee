// The engine's loop, on its own thread: take what came in, schedule a step, run it, hand out the tokens. Callers reach it through
// two calls that only append to an inbox; answers leave through each request's Response. Thread-safe where marked; the rest
// belongs to the engine thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "choral/llm.h"
#include "engine/adapters/adapter_residency.h"
#include "engine/engine_request.h"
#include "engine/executor.h"
#include "engine/spare_memory.h"
#include "engine/step_cycle.h"
#include "sched/scheduler.h"

namespace choral::engine {

class EngineCore {
 public:
  // `registry` gives the adapters that requests name. Nothing happens before start().
  EngineCore(std::unique_ptr<Executor> executor, const sched::SchedulerConfig& config, std::shared_ptr<AdapterRegistry> registry,
             int64_t adapter_budget_bytes, int64_t most_adapters = lora::kAnyNumber);
  // Stops after the step in progress; open requests end with kUnavailable (see ~EngineRequest).
  ~EngineCore();

  // Starts the engine's thread, once.
  Status start();
  // Any thread. Takes as many, from the front, as the queue has room for, all before the next step begins, and says how many;
  // refused with resource_exhausted when that is none.
  Result<size_t> add_requests(std::span<AdmittedRequest> requests);
  // Any thread. Unknown or finished ids are ignored.
  void cancel(std::vector<sched::RequestId> ids);
  // Any thread; as of the last step.
  EngineStats stats() const;
  // Any thread; what the device noted since the start.
  std::vector<std::string> device_notes() const;

 private:
  void run();
  void take_changes();
  void take_inbox();
  void admit(std::unique_ptr<EngineRequest> request);
  Status take(std::unique_ptr<sched::Request>& request);
  void retry_parked();
  void readmit_stranded();
  void drop_parked(sched::RequestId id);
  void step();
  void end_finished();
  void fail_step(const Status& status);
  void fail_one(EngineRequest& request, Status status);
  // How a token ends the answer; kNone: not.
  struct Ending {
    sched::FinishReason reason = sched::FinishReason::kNone;
    std::string stop_reason = {};
  };
  void take_output(double now);
  void commit(EngineRequest& request, std::span<SampledToken> sampled, double now);
  Ending keep_token(EngineRequest& request, const SampledToken& sampled);
  void finish(EngineRequest& request, sched::FinishReason reason, std::string stop_reason = "");
  void publish_stats();
  void publish_device_notes();

  std::unique_ptr<Executor> executor_;
  std::shared_ptr<AdapterRegistry> registry_;
  int64_t max_waiting_;
  AdapterResidency residency_;
  sched::Scheduler scheduler_;
  std::vector<std::unique_ptr<EngineRequest>> parked_;  // their adapters were never loaded before
  bool starved_ = false;                                // the last plan was empty: everybody waits for adapters
  StepCycle cycle_;
  std::vector<int32_t> accepted_;  // commit()'s own
  int64_t prompt_tokens_ = 0;
  int64_t generated_tokens_ = 0;
  SpareMemory spare_;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable inbox_changed_;
  std::vector<std::unique_ptr<EngineRequest>> inbox_;
  std::vector<sched::RequestId> cancels_;
  bool stop_ = false;
  bool adapters_changed_ = false;
  EngineStats stats_;
  std::vector<std::string> device_notes_;

  std::vector<std::unique_ptr<EngineRequest>> arrivals_;  // the engine thread's side of the two vectors above
  std::vector<sched::RequestId> leavers_;
  std::thread thread_;
};

}  // namespace choral::engine
