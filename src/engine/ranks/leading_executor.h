// The executor of the first of several processes that divide a model: it computes its share and tells the others what to compute.
// Each process reads adapters from its own machine's files, at the paths that the first one has them.
#pragma once

#include <memory>
#include <string>

#include "engine/executor.h"
#include "engine/ranks/process_rank.h"

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
  Status add_request(const NewRequest& request) override;
  Status execute_model(const StepInput& input, StepOutput& out) override;
  std::vector<std::string> take_device_notes() override { return rank_->worker().take_device_notes(); }

 private:
  explicit LeadingExecutor(std::unique_ptr<ProcessRank> rank) : rank_(std::move(rank)) {}

  template <class... Records>
  Status tell(const Records&... command);

  std::unique_ptr<ProcessRank> rank_;
  std::string told_;
};

}  // namespace choral::engine
