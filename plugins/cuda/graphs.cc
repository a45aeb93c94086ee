#include "graphs.h"

#include <algorithm>
#include <new>
#include <utility>

#include "error.h"

namespace choral_cuda {

StepGraphs::StepGraphs() : seen_(kSeenPlaces) {
  list_.reserve(kMostCalls);
  candidates_.reserve(kMostGraphs);
}

StepGraphs::~StepGraphs() {
  forget();
  if (captures_ != nullptr) (void)cudaStreamDestroy(captures_);
}

void StepGraphs::end_step(const Launch& launch) {
  end_list(launch);
  recording_ = false;
}

cudaError_t StepGraphs::run(const OpCall& call, const Launch& launch) {
  if (!recording_ || off_) return call.launch(launch, call.args.data());
  list_.add(call);
  narrow_candidates();
  cudaError_t error = cudaSuccess;
  if (candidates_.empty()) {
    launch_waiting(launch, list_.size() - 1);
    error = list_.launch(launched_++, launch);
    is_whole_ = is_whole_ && error == cudaSuccess;
  }
  if (list_.size() == kMostCalls) end_list(launch);
  return error;
}

// After the list has got a call.
void StepGraphs::narrow_candidates() {
  const size_t last = list_.size() - 1;
  if (last == 0) {
    const auto [first, end] = by_first_call_.equal_range(list_.hash_of_first());
    for (auto at = first; at != end; ++at) candidates_.push_back(at->second);
  }
  std::erase_if(candidates_, [&](const Place& kept) { return !kept->calls.has_same(last, list_); });
}

void StepGraphs::end_list(const Launch& launch) {
  if (list_.size() == 0) return;
  if (!launch_graph(launch.stream)) {
    launch_waiting(launch, list_.size());
    meet_again(launch);
  }
  list_.clear();
  candidates_.clear();
  launched_ = 0;
  is_whole_ = true;
}

// False: no kept list is this one, or it could not be launched.
bool StepGraphs::launch_graph(cudaStream_t stream) {
  const auto same =
      std::find_if(candidates_.begin(), candidates_.end(), [&](const Place& kept) { return kept->calls.size() == list_.size(); });
  if (same == candidates_.end()) return false;
  if (const cudaError_t error = cudaGraphLaunch((*same)->graph, stream); error != cudaSuccess) {
    turn_off("cudaGraphLaunch", error);
    return false;
  }
  kept_.splice(kept_.begin(), kept_, *same);
  ++counts_.launched;
  return true;
}

// Calls that returned before they were launched. What comes behind one that fails does not count.
void StepGraphs::launch_waiting(const Launch& launch, size_t end) {
  for (; launched_ < end; ++launched_) {
    const cudaError_t error = is_whole_ ? list_.launch(launched_, launch) : cudaSuccess;
    if (error == cudaSuccess) continue;
    is_whole_ = false;
    if (late_.op == nullptr) late_ = {error, list_.name(launched_)};
  }
}

// A list that was launched call by call: at its second time it becomes a graph.
void StepGraphs::meet_again(const Launch& launch) {
  if (off_ || !is_whole_ || list_.size() < kFewestCalls) return;
  const uint64_t hash = list_.hash();
  uint64_t& seen = seen_[hash % seen_.size()];
  if (seen != hash) {
    seen = hash;
    return;
  }
  if (counts_.captured >= kFreeCaptures + counts_.launched / kLaunchesForACapture) return;
  cudaGraphExec_t graph = nullptr;
  if (const cudaError_t error = capture(launch, &graph); error != cudaSuccess) return turn_off("capture", error);
  ++counts_.captured;
  try {
    keep(graph);
  } catch (const std::bad_alloc&) {
    (void)cudaGraphExecDestroy(graph);
    turn_off("keep a graph", cudaErrorMemoryAllocation);
  }
}

// On a stream of its own, so that a capture that fails leaves the step's as it was. Other threads go on reading weights.
cudaError_t StepGraphs::capture(const Launch& launch, cudaGraphExec_t* graph) {
  if (captures_ == nullptr) {
    if (const cudaError_t error = cudaStreamCreateWithFlags(&captures_, cudaStreamNonBlocking); error != cudaSuccess)
      return error;
  }
  Launch captured = launch;
  captured.stream = captures_;
  cudaError_t error = cudaStreamBeginCapture(captures_, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return error;
  for (size_t i = 0; i < list_.size() && error == cudaSuccess; ++i) error = list_.launch(i, captured);
  cudaGraph_t description = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(captures_, &description);
  if (error == cudaSuccess) error = ended;
  if (error == cudaSuccess) error = cudaGraphInstantiate(graph, description, 0);
  if (description != nullptr) (void)cudaGraphDestroy(description);
  return error;
}

void StepGraphs::keep(cudaGraphExec_t graph) {
  if (kept_.size() == kMostGraphs) drop(std::prev(kept_.end()));
  std::list<Kept> one;
  one.push_back({list_, graph});
  by_first_call_.emplace(list_.hash_of_first(), one.begin());
  kept_.splice(kept_.begin(), one);
}

void StepGraphs::drop(Place kept) {
  const auto [first, end] = by_first_call_.equal_range(kept->calls.hash_of_first());
  by_first_call_.erase(std::find_if(first, end, [&](const auto& entry) { return entry.second == kept; }));
  (void)cudaGraphExecDestroy(kept->graph);  // one that still runs goes when it is done
  kept_.erase(kept);
}

void StepGraphs::forget() {
  for (const Kept& kept : kept_) (void)cudaGraphExecDestroy(kept.graph);
  kept_.clear();
  by_first_call_.clear();
}

void StepGraphs::turn_off(const char* doing, cudaError_t error) {
  (void)cudaGetLastError();
  off_ = true;
  candidates_.clear();
  forget();
  if (is_lasting(error)) return;  // the device is gone, and whoever waits for it is told
  log(CHORAL_LOG_WARN,
      "CUDA graphs are off from here on: %s: %s. Steps go on, operator by operator: the same answers, more work for the host",
      doing, text_of(error).c_str());
}

StepGraphs::LateError StepGraphs::take_late_error() { return std::exchange(late_, {}); }

}  // namespace choral_cuda
