// Between the engine's loop and its workers: today one worker in this process; several devices or processes become several
// workers here, and nobody above notices.
#pragma once

#include <memory>

#include "engine/worker.h"

namespace choral::engine {

class Executor {
 public:
  explicit Executor(std::unique_ptr<Worker> worker) : worker_(std::move(worker)) {}

  // Runs one step; returns when every worker is done.
  Status execute_model(const sched::StepPlan& plan, StepOutput& out) { return worker_->execute_model(plan, out); }
  const Worker& worker() const { return *worker_; }
  std::vector<std::string> take_device_notes() { return worker_->take_device_notes(); }
  lora::LoRAModelManager& lora_manager() { return worker_->lora_manager(); }

 private:
  std::unique_ptr<Worker> worker_;
};

}  // namespace choral::engine
