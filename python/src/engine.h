// An engine as Python holds it: it can be closed before it is collected, and it refuses to work in a forked process, where its
// threads are not. Thread-safe.
#pragma once

#include <memory>
#include <mutex>

#include "binding.h"

namespace choral::python {

class Engine {
 public:
  static std::shared_ptr<Engine> load(EngineOptions options, nb::object on_progress);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Who calls the engine keeps it alive meanwhile; errors where it is closed, or is another process's.
  std::shared_ptr<LLM> use() const;
  // Ends what is in flight, when the last call in it has returned. A second close does nothing.
  void close();

  // Answers in the order of `requests`, which are all in flight as far as the queue has room. `on_done` is called with the number
  // of answers so far, on this thread. A signal's exception (Ctrl-C) cancels what is in flight.
  std::vector<RequestOutput> generate(std::vector<Request> requests, nb::object on_done);

 private:
  explicit Engine(std::shared_ptr<LLM> llm);

  const int process_;
  mutable std::mutex mutex_;
  std::shared_ptr<LLM> llm_;  // null: closed
};

}  // namespace choral::python
