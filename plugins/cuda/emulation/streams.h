// Queues of work that run when somebody waits for them. Under the runtime's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

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

}  // namespace cuda_emulation

struct CUstream_st {
  std::shared_ptr<cuda_emulation::Queue> queue = std::make_shared<cuda_emulation::Queue>();
};

struct CUevent_st {
  std::shared_ptr<cuda_emulation::Queue> queue;  // null: never recorded
  int64_t number = 0;
  // When the queue came by, in seconds; null: it is not for timing.
  std::shared_ptr<double> passed;
};

struct CUmemPoolHandle_st {
  int live = 0;  // allocations
};
