// CUDA graphs of a stream's steps: operators that a step called before, in this order and with the same arguments, are launched
// as one. Who calls knows nothing of it. docs/design/cuda.md says why it is done so.
//
// A step is cut into lists of kMostCalls operators. A call that goes on as a kept list does waits for the list's end and is then
// launched with it; any other is launched at once. A list that was seen before is captured when it ends, after it was launched.
// One thread at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "call_list.h"

namespace choral_cuda {

class StepGraphs {
 public:
  static constexpr size_t kMostCalls = 32;   // what the device waits for until it gets its first work
  static constexpr size_t kFewestCalls = 3;  // fewer are not worth a graph
  static constexpr size_t kMostGraphs = 1024, kSeenPlaces = 16 * kMostGraphs;
  // A capture takes as long as many launches: these are free, each further one is paid by so many launches of graphs.
  static constexpr int64_t kFreeCaptures = 256, kLaunchesForACapture = 8;

  struct Counts {
    int64_t launched = 0, captured = 0;
  };
  // The error of a call that was launched after it had returned; op is null where there was none.
  struct LateError {
    cudaError_t error = cudaSuccess;
    const char* op = nullptr;
  };

  StepGraphs();
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Between the two calls are put on lists. A step that will not come again is not begun.
  void begin_step() { recording_ = true; }
  void end_step(const Launch& launch);

  // Launches the call, or puts it on a list that is launched soon.
  cudaError_t run(const OpCall& call, const Launch& launch);
  // Everything that was called is launched: before anything else is queued on the stream, or memory is given back.
  void end_list(const Launch& launch);
  // Where the stream is waited for.
  LateError take_late_error();
  // Graphs hold Launch's scratch: after another one has taken its place. No list is open.
  void forget();

  const Counts& counts() const { return counts_; }

 private:
  struct Kept {
    CallList calls;
    cudaGraphExec_t graph;
  };
  using Place = std::list<Kept>::iterator;

  void narrow_candidates();
  bool launch_graph(cudaStream_t stream);
  void launch_waiting(const Launch& launch, size_t end);
  void meet_again(const Launch& launch);
  cudaError_t capture(const Launch& launch, cudaGraphExec_t* graph);
  void keep(cudaGraphExec_t graph);
  void drop(Place kept);
  void turn_off(const char* doing, cudaError_t error);

  bool recording_ = false, off_ = false;
  CallList list_;
  size_t launched_ = 0;            // of the list
  bool is_whole_ = true;           // every launch of it went well
  std::vector<Place> candidates_;  // that begin as the list does
  LateError late_;

  std::list<Kept> kept_;  // the last used first
  std::unordered_multimap<uint64_t, Place> by_first_call_;
  std::vector<uint64_t> seen_;  // hashes of lists that were launched once, each at its own place
  cudaStream_t captures_ = nullptr;
  Counts counts_;
};

}  // namespace choral_cuda
