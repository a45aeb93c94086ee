// The executor of the first of several processes that divide a model: it computes its share and tells the others what to compute.
// Each process reads adapters from its own machine's files, at the paths that the first one has them, and packs them beside the
// steps.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/executor.h"
#include "engine/ranks/process_rank.h"
#include "engine/ranks/rank_commands.h"

namespace choral::engine {

class LeadingExecutor : public Executor {
 public:
  // EngineOptions::rank_link is the first rank's.
  static Result<std::unique_ptr<LeadingExecutor>> load(EngineOptions& options, const ModelFiles& files,
                                                       const DraftMemory& draft = {});
  ~LeadingExecutor() override;

  const ExecutorFacts& facts() const override { return rank_->facts(); }
  Result<lora::Readiness> add_adapter(lora::AdapterKey key, lora::PackedVoice voice) override;
  void remove_adapter(lora::AdapterKey key) override;
  void take_adapters() override;
  void set_wake(std::function<void()> wake) override;
  Status add_request(const NewRequest& request) override;
  Status execute_model(const StepInput& input, StepOutput& out) override;
  std::vector<std::string> take_device_notes() override { return rank_->worker().take_device_notes(); }

 private:
  explicit LeadingExecutor(std::unique_ptr<ProcessRank> rank) : rank_(std::move(rank)) {}
  Status start();
  // Whether every rank has read these voices' adapters, or knows that it cannot; from now on they do so.
  Result<std::vector<bool>> prepare(const std::vector<FarVoice>& voices);
  // Wakes the engine now and then, to ask again, while voices are coming.
  void run_alarm();
  void note_coming();

  template <class... Records>
  Status tell(const Records&... command);

  std::unique_ptr<ProcessRank> rank_;
  std::string told_;
  std::vector<FarVoice> coming_;

  std::mutex alarm_mutex_;
  std::condition_variable alarm_changed_;
  std::function<void()> wake_;
  bool is_anything_coming_ = false, stop_ = false;
  std::thread alarm_;
};

}  // namespace choral::engine
