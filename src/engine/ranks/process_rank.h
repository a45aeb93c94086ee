// One of several processes that divide a model (EngineOptions::rank_link): each has read its rows of every matrix from files of
// its own machine. What all of them do alike; the first one leads (leading_executor.h), the others follow (following_rank.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "engine/model_loader.h"
#include "engine/ranks/message_collective.h"
#include "engine/ranks/rank_channel.h"
#include "engine/worker.h"

namespace choral::engine {

class ProcessRank {
 public:
  // All ranks call it. An error of one is an error of all. `draft`: what a draft model takes beside, on the first.
  static Result<std::unique_ptr<ProcessRank>> load(EngineOptions& options, const ModelFiles& files,
                                                   const DraftMemory& draft = {});

  RankChannel& channel() { return channel_; }
  Worker& worker() { return *worker_; }
  // Of the whole model, as this rank knows it.
  const ExecutorFacts& facts() const { return facts_; }

  // On the first rank: what every other one answers; the first error. `late`: RankChannel::receive_late().
  Status hear(bool late);
  // A step of all ranks. An error is this rank's own, or that another could not do it or is lost.
  Status execute_model(const StepInput& input, StepOutput& out);

 private:
  class Loading;
  explicit ProcessRank(const EngineOptions& options)
      : channel_(options.rank_link, options.rank_timeout_s, options.on_lost), collective_(channel_) {}

  RankChannel channel_;
  MessageCollective collective_;
  std::unique_ptr<Worker> worker_;
  std::vector<lora::LoRATarget> targets_;
  ExecutorFacts facts_;
  std::string heard_;
};

}  // namespace choral::engine
