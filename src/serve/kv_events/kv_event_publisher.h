// Publishes the events of the prefix cache over ZeroMQ, as vLLM does: messages of three parts (topic, number, events), and the
// past ones to whoever asks for them by the number of the first. Number 0 says that all is cleared, as it is when an engine
// begins; where a number is missing, events were lost. A thread of its own; the engine never waits for it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "choral/llm.h"
#include "serve/kv_events/kv_event_settings.h"

namespace choral::serve {

class KvEventPublisher {
 public:
  // Its sockets are open, and say nothing yet.
  static Result<std::unique_ptr<KvEventPublisher>> make(const KvEventSettings& settings);
  ~KvEventPublisher();
  KvEventPublisher(const KvEventPublisher&) = delete;
  KvEventPublisher& operator=(const KvEventPublisher&) = delete;

  // Once. `llm` outlives this.
  Status start(LLM& llm);

 private:
  struct Past;
  KvEventPublisher(std::string topic, std::unique_ptr<Past> past);
  void run(LLM& llm);
  void publish(uint64_t number, std::string message);
  void answer_those_who_ask();

  const std::string topic_;
  std::unique_ptr<Past> past_;
  std::atomic<bool> ending_ = false;
  bool has_warned_ = false;
  std::thread thread_;
};

}  // namespace choral::serve
