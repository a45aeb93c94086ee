// EngineCore's pauses: asked for by callers, kept by the loop, which takes requests in and computes no step.
#include <algorithm>
#include <utility>

#include "engine/engine_core.h"

namespace choral::engine {

Status EngineCore::pause(PauseMode mode) {
  std::unique_lock lock(mutex_);
  flow_ = mode == PauseMode::kWait ? Flow::kEnding : Flow::kPaused;
  aborts_ |= mode == PauseMode::kAbort;
  const uint64_t resumes = resumes_;
  const Turn asked = ++turn_asked_;
  inbox_changed_.notify_one();
  turned_.wait(lock, [&] { return stop_ || resumes_ != resumes || (turn_ended_ >= asked && flow_ == Flow::kPaused); });
  if (stop_) return unavailable("the engine is shutting down");
  return resumes_ == resumes ? Status() : unavailable("the engine was told to go on before it had paused");
}

void EngineCore::resume() {
  {
    const std::lock_guard lock(mutex_);
    flow_ = Flow::kRuns;
    resumed_ = true;
    ++resumes_;
  }
  inbox_changed_.notify_one();
  turned_.notify_all();
}

// Those whose adapters may have come, and those that were held.
void EngineCore::retry_parked() {
  std::vector<std::unique_ptr<EngineRequest>> again;
  again.swap(parked_);
  for (auto& request : again) {
    if (request->is_held && seen_flow_ != Flow::kRuns) {
      parked_.push_back(std::move(request));
    } else {
      request->is_held = false;
      admit(std::move(request));
    }
  }
}

void EngineCore::cancel_all() {
  std::vector<sched::RequestId> all;
  for (const auto* request : scheduler_.running()) all.push_back(request->id);
  for (const auto* request : scheduler_.waiting()) all.push_back(request->id);
  for (const auto& request : parked_) all.push_back(request->id);
  for (const auto id : all) cancel_one(id);
}

// What was in flight when the pause was asked for has ended, unless somebody asked for something else meanwhile.
void EngineCore::end_flow() {
  const bool all_held = std::all_of(parked_.begin(), parked_.end(), [](const auto& request) { return request->is_held; });
  if (scheduler_.has_work() || !all_held) return;
  {
    const std::lock_guard lock(mutex_);
    if (flow_ == Flow::kEnding) flow_ = Flow::kPaused;
  }
  turned_.notify_all();
}

}  // namespace choral::engine
