// The executor of a model that several ranks of this process divide (--tensor-parallel-size): each has some rows of every matrix
// and some heads of attention, its own threads and its own KV memory, made by these threads. Where a device computes each rank
// has one. Answers are the bits of one rank's (platform/collective.h). Adapters are in the host's memory once, and each rank
// computes its outputs' share of them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/executor.h"
#include "engine/ranks/rank_thread.h"
#include "engine/ranks/thread_collective.h"
#include "engine/worker.h"

namespace choral::engine {

class RanksExecutor : public Executor {
 public:
  // As UniprocExecutor's.
  static Result<std::unique_ptr<RanksExecutor>> load(EngineOptions& options, const ModelFiles& files,
                                                     const DraftMemory& draft = {});

  const ExecutorFacts& facts() const override { return facts_; }
  Result<lora::Readiness> add_adapter(lora::AdapterKey key, lora::PackedVoice voice) override;
  void remove_adapter(lora::AdapterKey key) override;
  void take_adapters() override;
  void set_wake(std::function<void()> wake) override;
  Status add_request(const NewRequest& request) override;
  Status execute_model(const StepInput& input, StepOutput& out) override;
  std::vector<std::string> take_device_notes() override;

 private:
  struct Rank {
    std::unique_ptr<Worker> worker;
    std::unique_ptr<RankThread> thread;  // null: of rank 0, whose work is the caller's
    std::function<void()> step;          // with input_
    StepOutput unread;
    Status status;  // of what it did last
  };
  class Loading;

  explicit RanksExecutor(int ranks);
  Worker& worker(int rank) const { return *ranks_[static_cast<size_t>(rank)].worker; }
  // Runs work(rank) of every rank, side by side; the first error.
  Status on_each(const std::function<Status(int rank)>& work);
  Status open(EngineOptions& options, Loading& loading, const io::ConfigMap& config);
  // Each device's memory is planned by itself, and the least counts; what is the machine's is planned for all ranks together.
  Status plan(const EngineOptions& options, Loading& loading, const DraftMemory& draft);
  Status plan_each(const EngineOptions& options, Loading& loading, const DraftMemory& draft);
  void describe(const Loading& loading);

  ThreadCollectives collectives_;
  std::vector<Rank> ranks_;
  const StepInput* input_ = nullptr;  // of the step that runs
  std::vector<lora::LoRATarget> targets_;
  ExecutorFacts facts_;
};

}  // namespace choral::engine
