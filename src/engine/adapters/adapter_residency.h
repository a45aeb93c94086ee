// Which adapters are in memory, for whom. It brings together what the loader packed (AdapterRegistry), what is known of contents
// (AdapterContents), what may stay and who asks (AdapterMemory, which decides, and AdapterPins), and tells the
// scheduler which requests can run.
// A request passes three times: arrive() (its adapters are named), acquire() and release() by the scheduler, leave() at its end.
// One that waits while its adapter's bytes are lost starts over, with the name's meaning by then. Engine thread only; a
// steady-state step calls nothing of it. docs/design/adapter-records.md says which record keeps what.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "engine/adapters/adapter_contents.h"
#include "engine/adapters/adapter_pins.h"
#include "engine/adapters/adapter_registry.h"
#include "engine/engine_request.h"
#include "engine/executor.h"
#include "sched/adapter_gate.h"
#include "sched/adapter_memory.h"

namespace choral::engine {

class AdapterResidency : public sched::AdapterGate {
 public:
  // `registry` and `executor` outlive this.
  AdapterResidency(AdapterRegistry& registry, Executor& executor, int64_t budget_bytes, int64_t most_adapters = lora::kAnyNumber);
  ~AdapterResidency() override;

  // Takes in what the loader finished, what came to the device, pins, and what nobody names any more: when the registry or the
  // executor woke the engine, and before schedule(), never inside it. After each load that ended, before the next takes its room,
  // `on_load` is called: who waited for it may arrive() again.
  void take_changes(FunctionRef<void()> on_load);
  void take_changes() {
    take_changes([] {});
  }

  enum class Arrival : uint8_t { kKnown, kWaiting, kFailed };
  // kKnown: the request's key, prefix origin and activation are set and it can be scheduled. kWaiting: its adapters were never
  // loaded; ask again after take_changes(). kFailed: request.adapter_status says why.
  Arrival arrive(EngineRequest& request);
  // The adapters of a request whose arrival was kKnown, for whoever reads its answer.
  std::vector<AnswerAdapter> describe(const EngineRequest& request) const;
  // The end of a request that arrived, however it came; after release() if it held.
  void leave(EngineRequest& request);
  // Whether a load failed since the last call of a version that was in memory before: requests may be stranded.
  bool take_may_be_stranded() { return std::exchange(may_be_stranded_, false); }
  // It waits for a version that was dropped and cannot be read again.
  bool is_stranded(const EngineRequest& request) const;
  // Makes it one that may arrive() once more, for what its names stand for now.
  void start_over(EngineRequest& request);

  void begin_round() override { memory_.begin_round(); }
  sched::Residency acquire(sched::Request& request) override;
  bool prefetch(sched::Request& request) override;
  void release(sched::Request& request) override;

  // What is in memory, and what room is reserved for.
  int64_t resident_bytes() const { return memory_.book().used().bytes; }
  int64_t budget_bytes() const { return memory_.book().budget().bytes; }
  int64_t loads() const { return loads_; }
  const AdapterLoadSeconds& load_seconds() const { return load_seconds_; }
  int64_t evictions() const { return memory_.book().evictions(); }
  size_t content_count() const { return contents_.size(); }

 private:
  void take_in(LoadedAdapter& loaded);
  void fail(AdapterVersion& version, Status why);
  Status choose_version(VersionUse& use);
  bool in_memory(const AdapterVersion& version) const;
  void settle_pins();
  Status check_tokens(const EngineRequest& request) const;
  void drop_unnamed();
  bool join_voice(EngineRequest& request);
  Result<lora::Readiness> register_weights(const sched::Voice& voice);
  Status failure_of(const EngineRequest& request) const;
  Status too_much(const sched::Voice& voice) const;
  void carry_out(const EngineRequest* request);
  void publish(const AdapterContent& content);

  AdapterRegistry& registry_;
  Executor& executor_;
  sched::AdapterMemory memory_;
  AdapterPins pins_{memory_};
  AdapterContents contents_;
  std::vector<LoadedAdapter> loaded_;
  std::vector<lora::AdapterId> loads_wanted_, drops_wanted_;  // carry_out()'s own
  bool may_be_stranded_ = false;
  int64_t loads_ = 0;
  AdapterLoadSeconds load_seconds_;
};

}  // namespace choral::engine
