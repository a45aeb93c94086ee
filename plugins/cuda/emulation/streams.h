// Queues of work that run when somebody waits for them. Under the runtime's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime_api.h"

namespace cuda_emulation {

struct Queue {
  std::deque<std::function<void()>> waiting;
  int64_t begun = 0;   // pieces of work
  int64_t queued = 0;  // begun and waiting

  void push(std::function<void()> work) {
    waiting.push_back(std::move(work));
    ++queued;
  }
  // Everything up to the piece with this number.
  void run_to(int64_t number) {
    while (begun < number && !waiting.empty()) {
      const auto work = std::move(waiting.front());
      waiting.pop_front();
      ++begun;
      work();
    }
  }
  void run() { run_to(queued); }
};

using Work = std::function<void()>;

// What a stream is told while it is captured: nothing of it runs.
struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;  // that began it
  bool spoiled = false;
  std::vector<Work> work;

  bool forbids(std::thread::id caller) const {
    return mode == cudaStreamCaptureModeGlobal || (mode == cudaStreamCaptureModeThreadLocal && caller == thread);
  }
};

}  // namespace cuda_emulation

struct CUstream_st {
  int device = 0;
  std::shared_ptr<cuda_emulation::Queue> queue = std::make_shared<cuda_emulation::Queue>();
  std::unique_ptr<cuda_emulation::Capture> capture = nullptr;

  cudaError_t push(cuda_emulation::Work work) {
    if (capture == nullptr) return queue->push(std::move(work)), cudaSuccess;
    if (capture->spoiled) return cudaErrorStreamCaptureInvalidated;
    capture->work.push_back(std::move(work));
    return cudaSuccess;
  }
};

struct CUgraph_st {
  int device = 0;
  std::vector<cuda_emulation::Work> work;
};
// A launch that still waits holds the work too.
struct CUgraphExec_st {
  int device = 0;
  std::shared_ptr<const std::vector<cuda_emulation::Work>> work;
};

struct CUevent_st {
  int device = 0;
  std::shared_ptr<cuda_emulation::Queue> queue = nullptr;  // null: never recorded
  int64_t number = 0;
  // When the queue came by, in seconds; null: it is not for timing.
  std::shared_ptr<double> passed = nullptr;
};

struct CUmemPoolHandle_st {
  int device = 0;
  int live = 0;  // allocations
};
