// Many requests to their ends, with a thread that waits for them, so that the caller's may look after signals.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "choral/llm.h"

namespace choral::python {

class Gather {
 public:
  // `llm` outlives this.
  Gather(LLM& llm, std::vector<Request> requests);
  // Cancels what is in flight.
  ~Gather();
  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;

  // Waits a moment. True: all have ended. `done` of them have an answer, the first ones.
  bool wait(size_t& done);
  // In the order of the requests, when all have ended.
  std::vector<RequestOutput> outputs() && { return std::move(outputs_); }

 private:
  void run();
  bool submit_next();

  LLM& llm_;
  std::vector<Request> requests_;
  std::vector<RequestOutput> outputs_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::unique_ptr<ResponseStream>> in_flight_;  // those from done_ on; null: refused, with its answer
  size_t done_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace choral::python
